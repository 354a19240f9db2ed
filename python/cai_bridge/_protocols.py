"""The arguments of the bridge's functions, as types for a type checker."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array that speaks DLPack (Python array API 2025.12, ``array.__dlpack__``)."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """Return a capsule named ``dltensor`` or ``dltensor_versioned``."""
        ...

    def __dlpack_device__(self) -> tuple[Any, int]:
        """Return ``(device_type, device_id)``."""
        ...


class ExportsDLPack(Protocol):
    """An array as JAX's stub declares it: ``__dlpack__`` without parameters, and no device."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a capsule."""
        ...


@runtime_checkable
class SupportsCudaArrayInterface(Protocol):
    """An array that speaks the CUDA Array Interface, version 0 to 3."""

    @property
    def __cuda_array_interface__(self) -> Any:
        """The dict with ``shape``, ``typestr``, ``data``, ``version`` and optional entries.

        Not narrower: the property's type in torch is a union for a type checker.
        """
        ...


@runtime_checkable
class SupportsCudaStream(Protocol):
    """A stream object that speaks CUDA's stream protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return ``(0, handle)``; a handle of 0 is the legacy default stream."""
        ...
