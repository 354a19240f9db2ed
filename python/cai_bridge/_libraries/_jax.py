"""JAX: by DLPack, asking for the stream itself. It never writes to what it is given."""

from __future__ import annotations

import threading
import time

from cai_bridge._core import _xla_handler, _xla_said

from ._library import Any, DLPackView, Quick, Routed, log


class Jax(Routed):
    name = "jax"
    arrays = ("jax:Array",)
    _from_host = "jax.dlpack:from_dlpack"
    # XLA says "UNIMPLEMENTED" to others (0.11.2).
    _strides = "compact"
    _gpu_memory_alone = True
    _versioned = False
    view = DLPackView
    writes = False
    # It never writes.
    readonly = False

    def routes(self) -> Quick:
        return _routes()


def _routes() -> Quick:
    import jax

    public_of = jax.dlpack.from_dlpack

    def public(view: Any, stream: Any) -> Any:
        return public_of(view)

    def same(one: Any, other: Any) -> bool:
        return bool(_state(one) == _state(other))

    try:
        quick = _by_buffer(public)
    except (ImportError, AttributeError):
        quick = public
    return Quick("jax", quick, public, same)


def _by_buffer(public: Any) -> Any:
    """Give JAX's own way from a capsule to an array, without what it does for others' arrays."""
    from jax import numpy
    from jax._src import dlpack, dtypes, xla_bridge

    buffer_of = dlpack._jax.dlpack_managed_tensor_to_buffer
    backend_of, canonical = xla_bridge.get_backend, dtypes.canonicalize_dtype
    # DLPack's number of CUDA, and the bytes from which on JAX may have a narrower type instead.
    cuda, wide = 2, 8

    def quick(view: Any, stream: Any) -> Any:
        kind, ordinal = view.device
        if kind != cuda:
            return public(view, stream)
        device = backend_of("cuda").device_from_local_hardware_id(ordinal)
        ready = device.get_stream_for_external_ready_events()
        array = buffer_of(view.__dlpack__(stream=ready), device, ready, None, kind)
        if array.dtype.itemsize < wide:
            return array
        dtype = canonical(array.dtype)
        return array if dtype == array.dtype else numpy.asarray(array, dtype=dtype)

    return quick


def _state(array: Any) -> tuple[Any, ...]:
    """Return an array's properties, all but its memory."""
    where = array.sharding, array.committed
    return (*where, type(array), array.shape, array.dtype, array.weak_type)


_asking = threading.Lock()
"""One answer is there at a time."""
_registered: set[str] = set()
LONGEST = 10.0
"""Seconds for a call to be made after it was asked for."""


def work_stream(device: int) -> int | None:
    """Give the stream that JAX computes on, on a GPU; None where it cannot be found out.

    JAX calls a deleter when it is done with an array on the host, while its own work may be
    pending. The stream that it gives ``__dlpack__`` is another one, which does not wait for that.
    """
    import jax

    try:
        gpus = jax.local_devices(backend="gpu")
        return _told(next(one for one in gpus if one.local_hardware_id == device), "CUDA")
    except Exception as error:
        log("jax: the stream that it computes on is not known: %r", error)
        return None


def _told(device: Any, platform: str) -> int | None:
    """Give what a call of XLA's foreign function interface is told there."""
    import jax
    import numpy as np

    name = "cai_bridge_stream"
    nothing = jax.ShapeDtypeStruct((), np.int32)
    # Whatever is traced just now: this is a call.
    with _asking, jax.ensure_compile_time_eval():
        if platform not in _registered:
            jax.ffi.register_ffi_target(name, _xla_handler(), platform=platform)
            _registered.add(platform)
        zero = jax.device_put(np.int32(0), device)
        call = jax.jit(jax.ffi.ffi_call(name, nothing, has_side_effect=True))
        call = call.lower(zero).compile()
        _xla_said()
        made, until = call(zero), time.monotonic() + LONGEST
        # Queued by now, or soon: nothing waits for the device.
        while not (stream := _xla_said()) and not made.is_ready() and time.monotonic() < until:
            time.sleep(0.001)
    return stream or _xla_said() or None


JAX = Jax()
