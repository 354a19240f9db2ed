"""JAX: imports by DLPack, and asks for the stream itself. It never writes to its arrays."""

from __future__ import annotations

import threading
import time

from cai_bridge._core import _xla_handler, _xla_said

from ._library import Any, DLPackView, Quick, Routed, log


class Jax(Routed):
    name = "jax"
    arrays = ("jax:Array",)
    _from_host = "cai_bridge._libraries._jax:of_host"
    # XLA answers "UNIMPLEMENTED" for strides with gaps (0.11.2).
    _strides = "compact"
    _gpu_memory_alone = True
    _versioned = False
    view = DLPackView
    writes = False
    # JAX never writes to its arrays.
    readonly = False

    def routes(self) -> Quick:
        return _routes()


NARROWER = {
    "<i8": ("int64", "int32"),
    "<u8": ("uint64", "uint32"),
    "<f8": ("float64", "float32"),
    "<c16": ("complex128", "complex64"),
}
"""The types that JAX silently narrows by a copy, unless `jax_enable_x64` is set."""


def of_host(array: Any) -> Any:
    """Return JAX's array over a host array. XLA copies memory not aligned to 64 bytes."""
    import jax

    refuse_narrower(array.__array_interface__["typestr"])
    return jax.dlpack.from_dlpack(array)


def refuse_narrower(typestr: str) -> None:
    """Refuse a type that JAX would make narrower."""
    import jax

    if typestr in NARROWER and not jax.config.jax_enable_x64:
        given, made = NARROWER[typestr]
        raise BufferError(
            f"dtype: got {given}, of which JAX makes {made}; allowed: any type after "
            f'jax.config.update("jax_enable_x64", True), or an array of {made}'
        )


def _routes() -> Quick:
    import jax

    public_of = jax.dlpack.from_dlpack

    def public(view: Any, stream: Any) -> Any:
        refuse_narrower(view.typestr)
        return public_of(view)

    def same(one: Any, other: Any) -> bool:
        return bool(_state(one) == _state(other))

    try:
        quick = _by_buffer(public)
    except (ImportError, AttributeError):
        quick = public
    return Quick("jax", quick, public, same)


def _by_buffer(public: Any) -> Any:
    """Return JAX's own route from a capsule to an array, without its checks for other libraries."""
    from jax._src import dlpack, xla_bridge

    buffer_of = dlpack._jax.dlpack_managed_tensor_to_buffer
    backend_of = xla_bridge.get_backend
    # DLPack's number.
    cuda = 2

    def quick(view: Any, stream: Any) -> Any:
        kind, ordinal = view.device
        if kind != cuda:
            return public(view, stream)
        device = backend_of("cuda").device_from_local_hardware_id(ordinal)
        ready = device.get_stream_for_external_ready_events()
        refuse_narrower(view.typestr)
        return buffer_of(view.__dlpack__(stream=ready), device, ready, None, kind)

    return quick


def _state(array: Any) -> tuple[Any, ...]:
    """Return an array's properties, except its memory."""
    where = array.sharding, array.committed
    return (*where, type(array), array.shape, array.dtype, array.weak_type)


_asking = threading.Lock()
"""Held while a thread asks: the core keeps one answer at a time."""
_registered: set[str] = set()
LONGEST = 10.0
"""How many seconds XLA may take to make a call."""


def work_stream(device: int) -> int | None:
    """Return the stream that JAX computes on, on a GPU; None if it cannot be found out.

    JAX calls a deleter when the host is done with an array, while JAX's work may be pending. The
    stream that JAX passes to ``__dlpack__`` is another stream, which does not wait for that work.
    """
    import jax

    try:
        gpus = jax.local_devices(backend="gpu")
        return _told(next(one for one in gpus if one.local_hardware_id == device), "CUDA")
    except Exception as error:
        log("jax: the stream that it computes on is not known: %r", error)
        return None


def _told(device: Any, platform: str) -> int | None:
    """Return the stream that XLA passes to a call of its foreign function interface."""
    import jax
    import numpy as np

    name = "cai_bridge_stream"
    nothing = jax.ShapeDtypeStruct((), np.int32)
    # Even while a program is being traced, this call runs now.
    with _asking, jax.ensure_compile_time_eval():
        if platform not in _registered:
            jax.ffi.register_ffi_target(name, _xla_handler(), platform=platform)
            _registered.add(platform)
        zero = jax.device_put(np.int32(0), device)
        call = jax.jit(jax.ffi.ffi_call(name, nothing, has_side_effect=True))
        call = call.lower(zero).compile()
        _xla_said()
        made, until = call(zero), time.monotonic() + LONGEST
        # XLA makes the call when it queues the work: nothing waits for the device.
        while not (stream := _xla_said()) and not made.is_ready() and time.monotonic() < until:
            time.sleep(0.001)
    return stream or _xla_said() or None


JAX = Jax()
