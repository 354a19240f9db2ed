"""Tells Dask where the serializers of views are, if Dask was imported before the bridge.

In Dask's workers Dask is imported first. When a view arrives, its class is imported, and Dask asks
for the serializer. Nothing of Dask is imported for this, and no preload is needed.
"""

from __future__ import annotations

from ._core import _imported

# Dask's modules, and in each the registries that views are entered in.
REGISTRIES = {
    "distributed.protocol.serialize": ("dask_serialize", "dask_deserialize"),
    "distributed.protocol.cuda": ("cuda_serialize", "cuda_deserialize"),
    "dask.sizeof": ("sizeof",),
    "dask.tokenize": ("normalize_token",),
}


def _load() -> None:
    import cai_bridge.dask  # noqa: F401, PLC0415


def announce() -> None:
    """Make Dask import `cai_bridge.dask` when it meets the first view."""
    if _imported("distributed.protocol.serialize") is None:
        return
    for module, names in REGISTRIES.items():
        for name in names:
            registry = getattr(_imported(module), name, None)
            if registry is not None:
                registry.register_lazy("cai_bridge", _load)
