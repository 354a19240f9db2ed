"""DLPack 1.3's C structures, by `ctypes`: to read, to take over, and to make by hand."""

from .dlpack_capsule import Taken, capsule_name, read_capsule, take
from .dlpack_exchange import (
    DLPackExchangeAPI,
    ExchangeTable,
    NullError,
    SilentError,
    exchange_table,
)
from .dlpack_fields import TensorFields
from .dlpack_managed import ManagedTensor
from .dlpack_structures import (
    IS_COPIED,
    IS_SUBBYTE_TYPE_PADDED,
    READ_ONLY,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLTensor,
)

__all__ = [
    "IS_COPIED",
    "IS_SUBBYTE_TYPE_PADDED",
    "READ_ONLY",
    "DLManagedTensor",
    "DLManagedTensorVersioned",
    "DLPackExchangeAPI",
    "DLTensor",
    "ExchangeTable",
    "ManagedTensor",
    "NullError",
    "SilentError",
    "Taken",
    "TensorFields",
    "capsule_name",
    "exchange_table",
    "read_capsule",
    "take",
]
