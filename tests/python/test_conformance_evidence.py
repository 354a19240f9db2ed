"""Libraries that are odd in one way, and right or not to be judged: what each verdict says.

Those that are wrong are rows of `tests/data/planted.toml`; here are only those that are found by
what they do when garbage is collected, or with a rare word.
"""

from __future__ import annotations

import contextlib
import gc
from collections import OrderedDict
from types import SimpleNamespace

import pytest
from fakes import FREE_THREADED
from producers import (
    Array,
    DLPack,
    Library,
    device,
    in_a_circle,
    is_columns,
    judged,
    pending,
    saying,
    speaking,
    working_on,
)

from cai_bridge.conformance import check_consumer, check_producer
from cai_bridge.conformance.lab import Late
from cai_bridge.conformance.libraries.simulated import Array as Taken
from cai_bridge.conformance.libraries.simulated import Consumer
from cai_bridge.testing._kit.dlpack_abi import ExchangeTable

# What deletes a tensor may also raise where nobody can pass it on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def verdict(lab, only, **odd):
    """Judge a library by one requirement, with some of its methods replaced."""
    if only.startswith("takes-"):
        kind = type("Odd", (Consumer,), {"name": "odd", **odd})
        return check_consumer(kind, lab=lab, only=only)[only]
    return judged(lab, only, (only.partition("-")[0],), **odd)


def capsule_of(change):
    """A `capsule` that changes what it is asked for, or the array that is shown."""

    def capsule(self, stream, newest, device, copy):
        asked = {"stream": stream, "max_version": newest, "dl_device": device, "copy": copy}
        shown = change(self, asked)
        return Array.capsule(shown or self, **asked)

    return capsule


def refuses_stream_2(array, asked):
    if asked["stream"] == 2:
        raise BufferError("not there")


def refuses_bool(array):
    if array.name == "bool":
        raise TypeError("no bools")
    return Array.interface(array)


def managed_as(version):
    return lambda array, form="versioned", **fields: Array.managed(array, version, **fields)


class Text(str):
    """A text with more to it."""


class Number(int):
    """An integer with more to it, such as that of an IntEnum."""


class OwnDict(Array):
    """Each array has its dict as an attribute of its own."""

    def __init__(self, *said):
        super().__init__(*said)
        self.__cuda_array_interface__ = self.interface()


class Old(Array):
    """Its method knows no other argument than the stream."""

    def __dlpack__(self, *, stream=None):
        return self.capsule(stream, None, None, None)

    __dlpack_device__ = DLPack.__dlpack_device__


class Constant(speaking("Constant", ("dlpack",))):  # type: ignore[misc]
    """Arrays that nobody may write."""

    def __init__(self, *said):
        super().__init__(*said)
        self.readonly = True


class Circle:
    """Keeps an array until garbage is collected; may then spoil its tensors."""

    def __init__(self, array, spoils):
        self.array, self.spoils, self.itself = array, spoils, self
        self.tensors = vars(array).setdefault("tensors", [])

    def __del__(self):
        for tensor in self.tensors if self.spoils else ():
            tensor.struct.dl_tensor.ndim = 0


def owned_by_a_circle(*, spoils):
    def capsule(self, stream, newest, device, copy):
        owner = Circle(self, spoils)
        tensor = self.managed("versioned" if newest else "legacy", owner=owner)
        owner.tensors.append(tensor)
        return tensor.capsule()

    return capsule


def asks(*wishes):
    def ask(self, x):
        for one in wishes:
            capsule = x.__dlpack__(**one)
        return capsule

    return ask


def copies(self, x):
    """Take a copy."""
    by_cai = hasattr(x, "__cuda_array_interface__")
    array = self.take_dict(x) if by_cai else Consumer.take_capsule(self, x)
    copy = device().array(shape=array.region.shape, dtype=array.region.dtype)
    self.current.copy(copy, array.region)
    return Taken(copy._region, array.ready, (array.held, copy))


def swallows(self, x):
    with contextlib.suppress(BufferError):
        return Consumer.take_capsule(self, x)


def lets_the_tensor_go(self, x):
    """What holds the tensor is garbage, which is collected at some time or other."""
    array = Consumer.take_capsule(self, x)
    circle = [array.held]
    circle.append(circle)
    array.held = None
    return array


def row(only, outcome, evidence, **odd):
    return only, outcome, evidence, odd


REFUSED = "the write was refused: BufferError: array: got a read-only array; allowed: a writable on"
NO_VERSION = "its capsules are legacy ones, which have no version"
ASKS_LEGACY = "it asks for legacy capsules, which have no version"
ROWS = {
    "a mask": row(
        "cai-mask", "passed", "has one", interface=lambda a: {**Array.interface(a), "mask": a}
    ),
    "no mask": row("cai-mask", "passed", "none"),
    "a byte of either order": row(
        *("cai-typestr", "passed", "<f4 ("),
        interface=saying(typestr=lambda _, said: ">i1" if said[1:] == "i1" else said),
    ),
    "a type that is refused": row(
        "cai-typestr", "passed", "more not judged, such as ", interface=refuses_bool
    ),
    "fields with shapes": row(
        *("cai-descr", "passed", ""),
        interface=saying(
            descr=lambda a, descr: [("x", "<f2", (2,))] if a.name == "float32" else descr
        ),
    ),
    "an ordered dict": row(
        "cai-entries", "passed", "", interface=lambda a: OrderedDict(Array.interface(a))
    ),
    "a typestr of a class of texts": row(
        "cai-typestr", "passed", "", interface=saying(typestr=lambda _, said: Text(said))
    ),
    "a stream of a class of numbers": row(
        "cai-stream", "passed", "", ready_stream=lambda a: Number(Array.ready_stream(a) or 1)
    ),
    "True for a stream": row(
        "cai-stream", "failed", "", ready_stream=lambda a: True if pending(a) else None
    ),
    "rows that are tuples": row(
        "cai-values", "passed", "", tolist=lambda a: tuple(map(tuple, Array.tolist(a)))
    ),
    "a dict that each array has by itself": row("cai-shape", "passed", "(3, 4)", kind=OwnDict),
    "a copy right behind the array": row(
        *("cai-strides", "passed", "None"),
        interface=saying(
            data=lambda a, data: (data[0] + 96 * is_columns(a), data[1]),
            strides=lambda a, strides: None if is_columns(a) else strides,
        ),
    ),
    "no stream to live": row(
        *("cai-stream-lifetime", "skipped", "the dict names no stream"),
        ready_stream=lambda a: None,
    ),
    "no device": row(
        *("dlpack-device", "failed", "Odd has no __dlpack_device__"),
        kind=type("Odd", (Array,), {"__dlpack__": DLPack.__dlpack__}),
    ),
    "a float in the device": row(
        "dlpack-device", "failed", "it gives (2.0, 0)", device=lambda a: (2.0, 0)
    ),
    "no DLPack": row(
        "dlpack-pending", "skipped", "Odd has no __dlpack__", kind=speaking("Odd", ("cai",))
    ),
    "no stream 2": row(
        "dlpack-pending", "passed", "asked for stream", capsule=capsule_of(refuses_stream_2)
    ),
    "no max_version": row("dlpack-version", "skipped", NO_VERSION, kind=Old),
    "legacy capsules": row(
        *("dlpack-version", "skipped", NO_VERSION),
        capsule=capsule_of(lambda _, asked: asked.update(max_version=None)),
    ),
    "no strides in 1.1": row(
        *("dlpack-strides", "skipped", "version (1, 1): NULL is allowed"),
        managed=managed_as("1.1"),
    ),
    "strides in 1.2": row("dlpack-strides", "passed", "(4, 1)", managed=managed_as("1.2")),
    "arrays that are all read-only": row("dlpack-flags", "passed", "0b1 (", kind=Constant),
    "no legacy capsule of what is read-only": row(
        *("dlpack-keywords", "skipped", "{'dl_device': (2, 0)}: max_version: got None; allowed: 1"),
        kind=Constant,
    ),
    "memory that goes before its tensor, as garbage": row(
        "dlpack-deleter", "failed", "", empty=in_a_circle, owner=lambda a: None
    ),
    "a tensor that goes with another, as garbage": row(
        *("dlpack-two-exports", "failed", "then the other says "),
        capsule=owned_by_a_circle(spoils=True),
    ),
    "an array that goes as garbage": row(
        "dlpack-deleter-anywhere", "passed", "", capsule=owned_by_a_circle(spoils=False)
    ),
    "a table that lends nothing": row(
        *("exchange-borrowed", "skipped", "the table has no such entry, which is optional"),
        table={"dltensor_from_py_object_no_sync": 0},
    ),
    "a table of another version": row(
        *("exchange-values", "skipped", "the table is none of DLPack 1, of which exchange-table"),
        table={"major": 2},
    ),
    "no table": row(
        *("exchange-values", "skipped", "Odd has no __dlpack_c_exchange_api__"),
        kind=speaking("Odd", ("cai",)),
    ),
    "a write that is refused, by CAI": row("takes-cai-readonly", "passed", REFUSED),
    "a write that is refused, by DLPack": row("takes-dlpack-readonly", "passed", REFUSED),
    "a write to a copy, by CAI": row(
        "takes-cai-readonly", "passed", "the write went elsewhere", take=copies
    ),
    "a write to a copy, by DLPack": row(
        "takes-dlpack-readonly", "passed", "the write went elsewhere", take=copies
    ),
    "no older tensor": row(
        "takes-dlpack-older-minor", "skipped", ASKS_LEGACY, ask=asks({"stream": 1})
    ),
    "no newer tensor": row(
        "takes-dlpack-newer-minor", "skipped", ASKS_LEGACY, ask=asks({"stream": 1})
    ),
    "no tensor of version 2": row(
        "takes-dlpack-other-major", "skipped", ASKS_LEGACY, ask=asks({"stream": 1})
    ),
    "nothing that is refused": row(
        *("takes-dlpack-refused-deleted", "skipped", "it refused none"),
        read=lambda self, capsule: None,
        region_of=lambda self, fields: device().array(shape=(3, 4))._region,
    ),
    "an error that is swallowed": row(
        "takes-dlpack-buffer-error", "failed", "it is swallowed", take=swallows
    ),
    "two requests": row(
        *("takes-dlpack-pending", "failed"),
        "it asks with stream=the legacy default stream and with stream=-1, and the copy",
        ask=asks({"stream": 1}, {"stream": -1}),
    ),
    "a tensor that is garbage": row(
        *("takes-dlpack-deleter-not-early", "failed"),
        "it was called, and the array still reads the memory",
        take=lets_the_tensor_go,
    ),
}


@pytest.mark.parametrize("what", ROWS)
def test_the_verdict_says_what_was_seen(what, lab):
    only, outcome, evidence, odd = ROWS[what]
    found = verdict(lab, only, **odd)
    assert found.outcome == outcome, found.evidence
    assert evidence in found.evidence


class AtItsEnd:
    """An array in a circle, which does something when it is collected."""

    def __init__(self, array, end):
        vars(self).update(vars(array))
        self._end, self._itself = end, self

    def __del__(self):
        self._end()


@pytest.mark.parametrize("door", ["cai", "dlpack"])
def test_what_is_written_when_an_array_is_collected_is_found(door, lab):
    def take(self, x):
        array = Consumer.take(self, x)

        def end():
            if device() is not None and not array.region.readonly:
                device().legacy.fill(array.region, 7.0)

        return AtItsEnd(array, end)

    assert verdict(lab, f"takes-{door}-unwritten", take=take).outcome == "failed"


@pytest.mark.parametrize("what", ["return", "return-write"])
def test_a_consumer_that_orders_back_when_its_array_is_collected_is_right(what, lab):
    def take(self, x):
        array, streams = Consumer.take(self, x), []

        def end():
            for stream in streams if array.ready else ():
                self.order(stream.handle, array.ready)

        made = AtItsEnd(array, end)
        made.streams = streams
        return made

    def used(self, array):
        array.streams.append(self.current)

    found = verdict(lab, f"takes-cai-{what}", take=take, give_back=used)
    assert found.outcome == "passed", found.evidence


@pytest.mark.skipif(FREE_THREADED, reason="garbage is collected by whichever thread")
def test_a_refused_tensor_may_be_deleted_by_the_garbage_collector(lab):
    def read(self, capsule):
        circle = [capsule]
        circle.append(circle)
        return Consumer.read(self, capsule)

    gc.collect()
    found = verdict(lab, "takes-dlpack-refused-deleted", read=read)
    assert found.outcome == "passed", found.evidence


@pytest.mark.parametrize("may_be", [True, False])
def test_negative_strides_may_be_refused_and_columns_may_not(may_be, lab, monkeypatch):
    export = ExchangeTable.export

    def refuses(table, x):
        # The kit's own arrays, which tell whether the lab is right, are not to be refused.
        if not isinstance(x, Array):
            return export(table, x)
        if min(x.strides or (1,)) < 0 if may_be else is_columns(x):
            raise BufferError("not this one")
        return export(table, x)

    monkeypatch.setattr(ExchangeTable, "export", refuses)
    found = verdict(lab, "exchange-values")
    assert found.outcome == ("passed" if may_be else "failed")
    assert may_be or "layout 'columns'" in found.evidence


@pytest.mark.parametrize("door", ["cai", "dlpack"])
def test_a_missing_protocol_is_told_before_the_streams_that_the_adapter_lacks(door, lab):
    other = {"cai": "dlpack", "dlpack": "cai"}[door]
    members = {"array": speaking("Nameless", (other,)), "stream": lambda self: None}
    only = f"{door}-pending-on-two"
    found = check_producer(type("Nameless", (Library,), members), lab=lab, only=only)[only]
    name = {"cai": "__cuda_array_interface__", "dlpack": "__dlpack__"}[door]
    assert found.evidence == f"Nameless has no {name}"


def test_a_stream_is_not_let_die_where_that_may_end_the_process(lab, monkeypatch):
    monkeypatch.setattr(lab, "expendable", False)
    found = verdict(lab, "cai-stream-lifetime")
    assert found.outcome == "skipped"
    assert found.evidence.startswith("judged only in a process that may crash")


@pytest.mark.parametrize(
    ("only", "versions"),
    [
        ("dlpack-dtype", {(1, 3), (1, 0), (2, 0), None}),
        ("dlpack-version", {(1, 3), (2, 0), None}),
    ],
)
def test_a_tensor_is_asked_for_in_each_version(only, versions, lab):
    seen = set()
    note = capsule_of(lambda _, asked: seen.add(asked["max_version"]))
    verdict(lab, only, capsule=note)
    assert seen == versions


@pytest.mark.parametrize(
    ("held", "outcome"),
    [((False, True, False), "passed"), ((False,) * 3, "failed"), ((True,) * 3, "passed")],
)
def test_a_host_that_waits_does_so_each_time(held, outcome, lab, monkeypatch):
    class Holds:
        """Holds back until it was asked for the first time, and then as `held` says."""

        def __init__(self, *then):
            self.left = [True, *then]

        release = SimpleNamespace

        @property
        def pending(self):
            return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    holding, holds = Holds(True), iter([Holds(one) for one in held])
    monkeypatch.setattr(lab, "rounds", 3)
    monkeypatch.setattr(lab, "no_waits", contextlib.nullcontext)
    monkeypatch.setattr(lab, "hold", lambda stream: next(holds, holding))
    found = verdict(lab, "dlpack-no-synchronization")
    assert found.outcome == outcome, found.evidence


class Unnamed(Library):
    """Its streams have no names, and its adapter says how work comes to be pending."""

    def stream(self):
        return None

    def late(self, lab, value, words=64):
        stream = lab.stream()
        hold = lab.hold(stream.handle)
        array = self.make((words,), "float32")
        with working_on(stream):
            array.fill(value)
        return Late(array, None, value, hold)


class OlderUnnamed(Unnamed):
    array = speaking(
        "Older", interface=lambda self: {**Array.interface(self), "version": 2, "stream": None}
    )


@pytest.mark.parametrize(
    ("kind", "only", "outcome", "said"),
    [
        (Unnamed, "dlpack-pending-elsewhere", "passed", "more not judged, such as"),
        (Unnamed, "cai-stream", "passed", "it names no stream, and with work pending stream 'the"),
        (OlderUnnamed, "cai-version", "failed", "version is 2, which has no stream"),
    ],
)
def test_work_on_streams_without_names_is_judged(kind, only, outcome, said, lab):
    found = check_producer(kind, lab=lab, only=only)[only]
    assert (found.outcome, said in found.evidence) == (outcome, True), found.evidence
