"""What DLPack and the CUDA Array Interface require, and a kit that judges libraries by it.

``pytest --pyargs cai_bridge.conformance --cai-producer module:factory`` runs one test a
requirement; `check_producer` and `check_consumer` do the same as a call. A requirement is a
function of an adapter, which says how a library makes or takes arrays, and a lab, which is where it
is judged.
"""

from cai_bridge.testing import assert_equivalent, describe
from cai_bridge.testing._kit.dlpack_abi import capsule_name, exchange_table, read_capsule, take
from cai_bridge.testing._kit.dlpack_fields import fields_of

from .adapter import ConsumerAdapter, ProducerAdapter
from .check import check_consumer, check_producer
from .consumer.arrays import Refusal, asked_with, attempt, expect_copied, stream_of
from .lab import CaiArray, DLPackArray, Lab, Late, flat, handle_of, open_lab
from .named import as_consumer, as_producer, consumer_named, producer_named
from .producer.arrays import (
    backwards,
    cai_of,
    can_be_late,
    collect,
    descr_size,
    export,
    has_table,
    host_values,
    in_another_thread,
    is_int,
    is_typestr,
    items,
    made,
    numbered,
    on_host,
    reference_to,
    sliced,
    slices,
    speaks_dlpack,
    strided,
    table_of,
)
from .report import ConformanceError, Report, Verdict
from .requirement import (
    NotApplicableError,
    Requirement,
    Specification,
    UnmetError,
    expect,
    given,
    needs,
    requirements,
)

__all__ = [
    "CaiArray",
    "ConformanceError",
    "ConsumerAdapter",
    "DLPackArray",
    "Lab",
    "Late",
    "NotApplicableError",
    "ProducerAdapter",
    "Refusal",
    "Report",
    "Requirement",
    "Specification",
    "UnmetError",
    "Verdict",
    "as_consumer",
    "as_producer",
    "asked_with",
    "assert_equivalent",
    "attempt",
    "backwards",
    "cai_of",
    "can_be_late",
    "capsule_name",
    "check_consumer",
    "check_producer",
    "collect",
    "consumer_named",
    "descr_size",
    "describe",
    "exchange_table",
    "expect",
    "expect_copied",
    "export",
    "fields_of",
    "flat",
    "given",
    "handle_of",
    "has_table",
    "host_values",
    "in_another_thread",
    "is_int",
    "is_typestr",
    "items",
    "made",
    "needs",
    "numbered",
    "on_host",
    "open_lab",
    "producer_named",
    "read_capsule",
    "reference_to",
    "requirements",
    "sliced",
    "slices",
    "speaks_dlpack",
    "stream_of",
    "strided",
    "table_of",
    "take",
]
