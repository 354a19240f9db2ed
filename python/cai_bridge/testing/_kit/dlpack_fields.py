"""The fields of DLPack's structures, read one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .dlpack_structures import (
    MAX_NDIM,
    READ_ONLY,
    DLManagedTensorVersioned,
    DLTensor,
    Managed,
)


@dataclass(frozen=True)
class TensorFields:
    """The fields of a DLPack structure.

    Attributes
    ----------
    name : str or None
        The name of its capsule; None for a tensor without a capsule.
    version : tuple of int or None
        ``(major, minor)``; None if the form has no version.
    flags : int or None
        The bits of `READ_ONLY`, `IS_COPIED` and `IS_SUBBYTE_TYPE_PADDED`; None if the form has no
        flags.
    data : int
        The address in ``data``; 0 for NULL. The first item is at `ptr`.
    device : tuple of int
        ``(device_type, device_id)``.
    dtype : tuple of int
        ``(code, bits, lanes)``.
    ndim : int
        The number of dimensions, as the structure has it.
    shape : tuple of int or None
        The extents; None if the pointer is NULL, or `ndim` is negative or greater than 64.
    strides : tuple of int or None
        The strides in elements; None in the same cases as `shape`.
    byte_offset : int
        The bytes from `data` to the first item.
    has_deleter : bool
        Whether the tensor has a deleter. A managed tensor may have none.
    """

    name: str | None
    version: tuple[int, int] | None
    flags: int | None
    data: int
    device: tuple[int, int]
    dtype: tuple[int, int, int]
    ndim: int
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    byte_offset: int
    has_deleter: bool

    @property
    def ptr(self) -> int:
        """The address of the first item."""
        return self.data + self.byte_offset

    @property
    def readonly(self) -> bool | None:
        """Whether the memory is read-only; None if the form has no such flag."""
        return None if self.flags is None else bool(self.flags & READ_ONLY)


def _integers(pointer: Any, ndim: int) -> tuple[int, ...] | None:
    if ndim == 0:
        return ()
    if not pointer or not 0 < ndim <= MAX_NDIM:
        return None
    return tuple(pointer[:ndim])


def fields_of(struct: DLTensor | Managed, name: str | None = None) -> TensorFields:
    """Read a structure, which must be alive.

    Raises
    ------
    BufferError
        The structure is of another major version, which may place the tensor's fields elsewhere.
        Only its version and its deleter may be touched.
    """
    versioned = struct if isinstance(struct, DLManagedTensorVersioned) else None
    if versioned and versioned.major != 1:
        raise BufferError(f"version: got {versioned.major}.{versioned.minor}; allowed: 1.x")
    tensor = struct if isinstance(struct, DLTensor) else struct.dl_tensor
    return TensorFields(
        name=name,
        version=(versioned.major, versioned.minor) if versioned else None,
        flags=versioned.flags if versioned else None,
        data=tensor.data or 0,
        device=(tensor.device_type, tensor.device_id),
        dtype=(tensor.code, tensor.bits, tensor.lanes),
        ndim=tensor.ndim,
        shape=_integers(tensor.shape, tensor.ndim),
        strides=_integers(tensor.strides, tensor.ndim),
        byte_offset=tensor.byte_offset,
        has_deleter=not isinstance(struct, DLTensor) and bool(struct.deleter),
    )
