"""JAX: by DLPack, asking for the stream itself. It never writes to what it is given."""

from __future__ import annotations

from typing import Any

from ._library import DLPackView, Quick, Routed


class Jax(Routed):
    name = "jax"
    arrays = ("jax:Array",)
    view = DLPackView
    writes = False
    # Its capsules have no read-only flag, and it never writes.
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


JAX = Jax()
