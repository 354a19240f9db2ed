"""The judging itself: what is told, what is left without a verdict, and what is not a mistake."""

from __future__ import annotations

import planted
import producers
import pytest
from capsules import HandMade
from fakes import OnlyCai
from producers import Array, Library, speaking

from cai_bridge.conformance import (
    ConsumerAdapter,
    ProducerAdapter,
    UnmetError,
    check_consumer,
    check_producer,
    open_lab,
)
from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.libraries.simulated import Consumer
from cai_bridge.conformance.producer.arrays import is_typestr
from cai_bridge.conformance.producer.values import items
from cai_bridge.conformance.stand_in import speaking_only
from cai_bridge.testing import SimulatedCuda, describe, simulated_cuda
from cai_bridge.testing._region import Region


def test_what_passed_is_told_with_what_was_seen(lab):
    for report in (check_producer(Library, lab=lab), check_consumer(Consumer, lab=lab)):
        assert {one.name for one in report.verdicts if not one.evidence} == set()


ORDER = ("takes-cai-stream", "takes-dlpack-pending")


def test_a_consumer_whose_adapter_says_no_stream_is_not_judged_by_its_own(lab):
    class Nameless(Consumer):
        def stream(self):
            return None

    report = check_consumer(Nameless, lab=lab)
    asked = {*ORDER, "takes-cai-pending-read", "takes-dlpack-pending-read"}
    asked |= {"takes-cai-return", "takes-cai-return-write", "takes-dlpack-deleter-queued"}
    asked |= {"takes-cai-other-stream", "takes-dlpack-other-stream"}
    # On its default stream it is judged.
    told = {one.name: one.missing for one in report.verdicts if one.missing}
    assert told == dict.fromkeys(asked, "stream()")


def test_a_consumer_with_streams_and_without_on_says_what_is_missing(lab):
    class WithoutOn(Consumer):
        on = ConsumerAdapter.on

        def stream(self):
            return self.current.handle

    report = check_consumer(WithoutOn, lab=lab, only=ORDER)
    assert {one.missing for one in report.verdicts} == {"on(stream)"}


def test_what_an_adapter_cannot_be_judged_without_is_named(lab):
    class Mute(ProducerAdapter):
        pass

    class Deaf(ConsumerAdapter):
        pass

    for report, member in (
        (check_producer(Mute, lab=lab), "make(shape, dtype)"),
        (check_consumer(Deaf, lab=lab), "take(x)"),
    ):
        assert not report.ok
        assert {one.outcome for one in report.verdicts} == {"skipped"}
        assert report.verdicts[0].missing == member
        assert "test_conformance_judging.py:" in report.verdicts[0].evidence


def test_a_library_without_a_protocol_is_told_so_before_what_its_adapter_lacks(lab):
    class Nameless(Library):
        array = speaking("Nameless", ("cai",))

        def stream(self):
            return None

    found = check_producer(Nameless, lab=lab, only="dlpack-pending-on-two")
    assert found["dlpack-pending-on-two"].evidence == "Nameless has no __dlpack__"


@pytest.mark.parametrize(("at", "is_told"), [(0, False), (4, False), (8, False), (2, True)])
def test_a_slice_next_to_the_array_is_a_copy_and_one_that_reaches_beyond_is_none(at, is_told, lab):
    x = Library.array.made((12,), "float32")
    ptr = x._region.ptr
    lab.put(x._region, [float(place) for place in range(12)])
    part, whole = (Region(ptr + 4 * one, (4,), (4,), "float32", 4) for one in (at, 4))
    if is_told:
        with pytest.raises(UnmetError, match="reaches from byte -8 to 8 of the array's 16"):
            items(lab, part, whole)
    else:
        assert items(lab, part, whole) == [float(place) for place in range(at, at + 4)]


def test_a_consumer_that_asks_for_legacy_capsules_is_not_judged_by_versions(lab):
    kind = planted.faulty("consumer", "takes-dlpack-max-version")
    found = check_consumer(kind, lab=lab, only="takes-dlpack-other-major")
    told = found["takes-dlpack-other-major"]
    assert told.outcome == "skipped"
    assert told.evidence == "it asks for legacy capsules, which have no version"


@pytest.mark.parametrize(
    ("typestr", "dtype", "is_one"),
    [
        *[("<f4", "float32", True), ("<f8", "float32", False), ("<i4", "float32", False)],
        *[("<V2", "bfloat16", True), ("<u2", "bfloat16", True), ("<f2", "bfloat16", True)],
        *[("<i2", "bfloat16", False), ("<V4", "bfloat16", False), ("f4", "float32", False)],
        *[("<i4", "a type of its own", True), ("i4", "a type of its own", False)],
    ],
)
def test_what_a_typestr_is_of(typestr, dtype, is_one):
    assert is_typestr(typestr, dtype) is is_one


def test_an_array_without_items_is_read_with_what_its_producer_says(lab):
    (said,) = describe(HandMade(4096, form="legacy", shape=(0, 3), null=["strides"]).capsule())
    assert said.strides == (12, 4)
    x = Library.array.made((2,), "float32")
    notes = {0: "ptr: the specification asks for 0 where there are no items"}
    for extent in (0, 2):
        entries = {"shape": (extent,), "typestr": "<f4", "version": 3, "strides": None}
        entries["data"] = (x._region.ptr, False)
        (said,) = describe(OnlyCai(entries))
        assert notes.get(extent) in (*said.notes, None)
        assert bool(said.notes) == (extent in notes)


def test_types_are_a_tuple_of_names():
    class Mistaken(Library):
        dtypes = "float32"

    with pytest.raises(TypeError, match="dtypes: got a str; allowed: a tuple of names"):
        check_producer(Mistaken)


class Offsetting(Library):
    """Its tensors begin before their first item, and say how far."""

    class Own(producers.DLPack, Array):
        def managed(self, form="versioned", **fields):
            if self._region.size:
                fields = {"ptr": self._region.ptr - 16, "byte_offset": 16, **fields}
            return Array.managed(self, form, **fields)

    array = Own


def test_a_library_that_uses_byte_offset_fails_in_nothing(lab):
    report = check_producer(Offsetting, lab=lab)
    assert {one.name: one.evidence for one in report.failed} == {}
    assert report["dlpack-two-exports"].outcome == "passed"


def test_a_refusal_of_an_array_that_may_be_written_is_told(lab):
    def capsule(self, stream, max_version, dl_device, copy):
        if copy is False:
            raise BufferError("not without a copy")
        return Array.capsule(self, stream, max_version, dl_device, copy)

    kind = type(
        "Refusing", (Library,), {"array": speaking("Refusing", ("dlpack",), capsule=capsule)}
    )
    found = check_producer(kind, lab=lab, only="dlpack-keywords")["dlpack-keywords"]
    assert found.outcome == "failed"
    assert found.evidence.startswith("raised BufferError: not without a copy")


@pytest.mark.parametrize("timed", [False, True])
def test_where_time_tells_what_was_there_before_is_known(timed, lab, monkeypatch):
    monkeypatch.setattr(lab, "timed", timed)
    filled = []

    class Filling(Library):
        def fill(self, array, value):
            filled.append(value)
            super().fill(array, value)

    Filling().late(lab, 5.0)
    assert filled == ([-1.0, 5.0] if timed else [5.0])
    filled.clear()
    Filling().late_on_two(lab, 6.0)
    assert filled == ([-1.0, 6.0, 6.0] if timed else [6.0, 6.0])


def test_of_two_streams_one_is_held_back_at_a_time_where_time_tells(lab, monkeypatch):
    monkeypatch.setattr(lab, "timed", True)
    held = []
    hold = lab.hold
    monkeypatch.setattr(lab, "hold", lambda stream: held.append(stream) or hold(stream))
    turns = []
    for value in (5.0, 6.0):
        held.clear()
        late = Library().late_on_two(lab, value)
        turns.append(held == [late.stream.handle])
        assert len(held) == 1
    assert sorted(turns) == [False, True]


def test_an_adapter_of_a_function_says_its_line():
    def make(shape, dtype):
        return Library.array.made(shape, dtype)

    report = check_producer(make, only=("cai-readonly", "cai-pending", "cai-shape"))
    line = make.__code__.co_firstlineno
    places = {place.rpartition(":")[2] for _, place in report.missing()}
    assert places == {str(line)}
    assert {member for member, _ in report.missing()} == {"readonly(array)", "stream()"}
    told = str(report).splitlines()
    assert told[-3] == "The adapter can add more:"
    assert told[-2].startswith("  def readonly(array) in ")
    assert told[-2].endswith(": cai-readonly")


def test_what_raised_is_told_from_where_the_kit_called_it(lab):
    def fail():
        raise ZeroDivisionError("out of luck")

    class Failing(Library):
        def readonly(self, array):
            try:
                fail()
            except ZeroDivisionError as error:
                raise RuntimeError("not today") from error

    found = check_producer(Failing, lab=lab, only="cai-readonly")["cai-readonly"]
    assert "raise ZeroDivisionError" in found.traceback
    assert "The above exception was the direct cause" in found.traceback
    assert found.traceback.endswith("RuntimeError: not today")
    assert "cai_bridge" not in found.traceback
    shown = str(check_producer(Failing, lab=lab, only="cai-readonly"))
    assert "    RuntimeError: not today\n\n    # cai-readonly: " in shown


def test_what_the_kit_itself_raises_is_told_too(lab):
    class Wrong(ProducerAdapter):
        def make(self, shape, dtype):
            return type("Odd", (), {"__cuda_array_interface__": {"shape": 3}})()

    found = check_producer(Wrong, lab=lab, only="cai-typestr")["cai-typestr"]
    assert found.outcome == "failed"
    assert "KeyError: 'typestr'" in found.traceback


class OfCai:
    @property
    def __cuda_array_interface__(self):
        return {"shape": (1,)}


class OfDLPack:
    def __dlpack__(self, **wishes):
        return wishes

    def __dlpack_device__(self):
        return (2, 0)


class Both(OfCai, OfDLPack):
    """Speaks both protocols, and says which type it is."""

    dtype = "bfloat16"


def test_an_array_is_shown_by_one_of_its_protocols():
    by_cai, by_dlpack = speaking_only("cai", Both()), speaking_only("dlpack", Both())
    assert by_cai.__cuda_array_interface__ == {"shape": (1,)}
    assert by_cai.dtype == "bfloat16"
    assert not hasattr(by_cai, "__dlpack__")
    assert by_dlpack.__dlpack__(stream=1, copy=None) == {"stream": 1, "copy": None}
    assert by_dlpack.__dlpack_device__() == (2, 0)
    assert not hasattr(by_dlpack, "__cuda_array_interface__")


def test_an_array_of_one_protocol_is_shown_as_it_is():
    for door, array in (("cai", OfCai()), ("dlpack", OfDLPack())):
        assert speaking_only(door, array) is array


def test_a_lab_on_the_device_that_is_in_place_leaves_it_there():
    with simulated_cuda() as cuda:
        with open_lab() as lab:
            assert lab.cuda is cuda
        assert SimulatedCuda.current() is cuda


def test_what_of_an_array_could_not_be_compared_is_told(lab):
    evidence = check_producer(simulated.Producer, lab=lab, only="both-agree")["both-agree"].evidence
    assert evidence.startswith("CAI and capsule (")
    assert "more not judged, such as layout 'columns': the adapter has no strided()" in evidence
    whole = check_producer(Library, lab=lab, only="both-agree")["both-agree"].evidence
    assert whole.startswith("exchange API and CAI and capsule (")


def test_a_place_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="where: got 'nowhere'; allowed: None, 'simulated' or 'gp"):
        open_lab("nowhere")


def test_a_table_of_another_version_is_told_from_none(lab):
    def evidence(kind):
        library = type("Library", (Library,), {"array": kind})
        return check_producer(library, lab=lab, only="exchange-values")["exchange-values"].evidence

    newer = speaking("Newer", ("exchange",), table={"version": (2, 0)})
    assert evidence(newer) == "the table is none of DLPack 1, of which exchange-table tells"
    assert evidence(speaking("Without", ("cai",))) == "Without has no __dlpack_c_exchange_api__"
