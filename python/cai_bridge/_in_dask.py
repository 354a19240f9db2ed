"""Tells Dask where the serializers of views are, if Dask was imported before the bridge.

So it is in Dask's workers. A view arrives there, its class is imported, and Dask asks for the
serializer: nothing of Dask is imported for it, and no preload is needed.
"""

from __future__ import annotations

from ._core import _imported

# The modules, and the registries in each that views are in.
REGISTRIES = {
    "distributed.protocol.serialize": ("dask_serialize", "dask_deserialize"),
    "distributed.protocol.cuda": ("cuda_serialize", "cuda_deserialize"),
    "dask.sizeof": ("sizeof",),
    "dask.tokenize": ("normalize_token",),
}


def _load() -> None:
    import cai_bridge.dask  # noqa: F401, PLC0415


def announce() -> None:
    """Have Dask import `cai_bridge.dask` when it meets the first view."""
    if _imported("distributed.protocol.serialize") is None:
        return
    for module, names in REGISTRIES.items():
        for name in names:
            registry = getattr(_imported(module), name, None)
            if registry is not None:
                registry.register_lazy("cai_bridge", _load)
