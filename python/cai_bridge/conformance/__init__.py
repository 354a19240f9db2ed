"""What DLPack and the CUDA Array Interface require, and a kit that judges libraries by it.

``pytest --pyargs cai_bridge.conformance --cai-producer module:factory`` runs one test a
requirement; `check_producer` and `check_consumer` do the same as a call. A requirement is a
function of an adapter, which says how a library makes or takes arrays, and a lab, which is where it
is judged.
"""

from cai_bridge.testing import assert_equivalent, describe
from cai_bridge.testing._kit.description import Description
from cai_bridge.testing._kit.dlpack_abi import capsule_name, exchange_table, read_capsule, take
from cai_bridge.testing._kit.dlpack_fields import fields_of
from cai_bridge.testing._values import nested

from .adapter import ConsumerAdapter, ProducerAdapter
from .cases import Case
from .check import check_consumer, check_producer
from .consumer.arrays import (
    Refusal,
    asked_with,
    attempt,
    expect_copied,
    expect_read,
    expect_read_or_refused,
    expect_refused,
    stream_of,
)
from .consumer.layouts import (
    expect_gaps_kept,
    expect_others_refused,
    handed,
)
from .consumer.waiting import (
    expect_each_waits,
    expect_other_stream_waits,
    expect_read_kept,
    expect_waits,
    needs_sharing,
)
from .lab import CaiArray, DLPackArray, Lab, Late, flat, handle_of, open_lab
from .layouts import View
from .named import as_consumer, as_producer, consumer_named, producer_named
from .places import BEFORE
from .producer.arrays import (
    asked_on,
    cai_of,
    can_be_late,
    collect,
    descr_size,
    dict_or_refused,
    expect_gone,
    expect_independent,
    expect_kept,
    expect_unwritten,
    export,
    has_table,
    in_another_thread,
    is_int,
    is_typestr,
    made,
    on_host,
    reference_to,
    speaks_dlpack,
    stream_taken,
    table_of,
)
from .producer.pending import (
    by_capsule,
    by_dict,
    by_table,
    end,
    expect_ordered,
    expect_read_first,
    pending,
)
from .producer.values import (
    by_cai,
    by_dlpack,
    by_exchange,
    by_loan,
    expect_values,
    is_copy,
    laid_out,
    lazy_values,
    numbers,
    said_or_refused,
    taken_of,
    whole_of,
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
from .stand_in import speaks

__all__ = [
    "BEFORE",
    "CaiArray",
    "Case",
    "ConformanceError",
    "ConsumerAdapter",
    "DLPackArray",
    "Description",
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
    "View",
    "as_consumer",
    "as_producer",
    "asked_on",
    "asked_with",
    "assert_equivalent",
    "attempt",
    "by_cai",
    "by_capsule",
    "by_dict",
    "by_dlpack",
    "by_exchange",
    "by_loan",
    "by_table",
    "cai_of",
    "can_be_late",
    "capsule_name",
    "check_consumer",
    "check_producer",
    "collect",
    "consumer_named",
    "descr_size",
    "describe",
    "dict_or_refused",
    "end",
    "exchange_table",
    "expect",
    "expect_copied",
    "expect_each_waits",
    "expect_gaps_kept",
    "expect_gone",
    "expect_independent",
    "expect_kept",
    "expect_ordered",
    "expect_other_stream_waits",
    "expect_others_refused",
    "expect_read",
    "expect_read_first",
    "expect_read_kept",
    "expect_read_or_refused",
    "expect_refused",
    "expect_unwritten",
    "expect_values",
    "expect_waits",
    "export",
    "fields_of",
    "flat",
    "given",
    "handed",
    "handle_of",
    "has_table",
    "in_another_thread",
    "is_copy",
    "is_int",
    "is_typestr",
    "laid_out",
    "lazy_values",
    "made",
    "needs",
    "needs_sharing",
    "nested",
    "numbers",
    "on_host",
    "open_lab",
    "pending",
    "producer_named",
    "read_capsule",
    "reference_to",
    "requirements",
    "said_or_refused",
    "speaks",
    "speaks_dlpack",
    "stream_of",
    "stream_taken",
    "table_of",
    "take",
    "taken_of",
    "whole_of",
]
