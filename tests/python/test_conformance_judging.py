"""The judging itself: what fails, what is left without a verdict, and what is told of it."""

from __future__ import annotations

from types import SimpleNamespace

import planted
import pytest
import small_library
from capsules import HandMade
from fakes import OnlyCai
from producers import Library, speaking

from cai_bridge.conformance import (
    CaiArray,
    ConsumerAdapter,
    ProducerAdapter,
    Report,
    UnmetError,
    Verdict,
    check_consumer,
    check_producer,
    expect_copied,
    open_lab,
    requirements,
)
from cai_bridge.conformance.cases import Case
from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.libraries.simulated import Consumer
from cai_bridge.conformance.producer.arrays import is_typestr
from cai_bridge.conformance.producer.values import items
from cai_bridge.testing import RaceError, SimulatedCuda, describe, simulated_cuda
from cai_bridge.testing._region import Region


def judged(kind, lab, only):
    return check_producer(kind, lab=lab, only=only)[only]


def test_a_race_is_a_failure_though_the_values_are_right(lab, monkeypatch):
    x, theirs, mine = CaiArray(lab, (8,)), lab.stream(), lab.stream()
    late = x.write_late(theirs, 5.0)
    lab.order(theirs.handle, mine.handle)
    assert "read what was written" in lab.expect_read(mine.handle, x.region, late, "so")
    monkeypatch.setattr(lab, "reports", lambda: ["race: told by the device"])
    with pytest.raises(UnmetError, match="so, and nothing orders the two: race: told by"):
        lab.expect_read(mine.handle, x.region, late, "so")
    copied = SimpleNamespace(value=[5.0]), mine
    with pytest.raises(UnmetError, match="race: told by the device"):
        expect_copied(simulated.Consumer(), lab, copied, late, "so")


def test_values_that_are_right_in_part_are_a_failure(lab):
    x, theirs = CaiArray(lab, (8,)), lab.stream()
    late = x.write_late(theirs, 5.0)
    lab.synchronize()
    lab.put(lab.words(x.region.ptr, 1), 4.0)
    with pytest.raises(UnmetError, match=r"so, but the read saw other items: 4.0 instead of 5.0"):
        lab.expect_read(theirs.handle, x.region, late, "so")
    copied = SimpleNamespace(value=[4.0, 5.0]), theirs
    with pytest.raises(UnmetError, match=r"the copy saw \[4.0, 5.0\]"):
        expect_copied(simulated.Consumer(), lab, copied, late, "so")


def test_a_copy_on_the_host_that_nothing_wrote_is_told_without_its_numbers(monkeypatch):
    numbers = iter(range(1 << 20))
    monkeypatch.setattr(
        "cai_bridge.conformance.producer.dlpack_arguments.on_host",
        lambda lab, said: [1e30 + next(numbers) * 1e25 for _ in range(said.size)],
    )
    # The kit's own library is read so as well, and the lab is not to be in doubt here.
    monkeypatch.setattr("cai_bridge.conformance.judging._of_the_kits_own", lambda *_: None)
    found = judged(small_library.Producer, None, "dlpack-host-copy")
    assert found.outcome == "failed"
    assert "it holds memory that nothing had written, and the array " in found.evidence


@pytest.mark.parametrize("made", [lambda *_: None, lambda *_: [1.0], lambda *_: 3])
def test_what_makes_no_arrays_is_no_success(made):
    report = check_producer(made, name="nothing")
    assert not report.ok
    assert "nothing was judged" in str(report)


class MuteError(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("method", "only", "error", "evidence"),
    [
        ("empty", "cai-shape", SystemExit(0), "raised SystemExit: 0"),
        ("empty", "cai-shape", MuteError(), "raised MuteError: its text raised ValueError"),
        *(
            ("__getitem__", only, RuntimeError("out of luck"), "raised RuntimeError: out of luck")
            for only in ("cai-values", "cai-offset", "cai-reversed")
        ),
    ],
)
def test_what_is_raised_by_mistake_is_a_failure(method, only, error, evidence, lab):
    def fail(*_):
        raise error

    kind = type("Mistaken", (Library,), {"array": speaking("Mistaken", **{method: fail})})
    found = judged(kind, lab, only)
    assert found.outcome == "failed"
    assert found.evidence.startswith(evidence)


def test_an_interrupt_is_no_failure(lab):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_producer(interrupt, lab=lab, only="cai-shape")


def test_what_was_found_before_is_not_forgotten():
    with simulated_cuda(check=False) as cuda:
        x, first, second = cuda.array([1.0]), cuda.stream(), cuda.stream()
        first.fill(x, 3.0)
        second.fill(x, 4.0)
        with pytest.raises(RaceError):
            check_producer(Library, only="cai-shape")
        assert len(cuda.reports) == 1


def test_what_fails_by_the_same_exception_is_one_cause():
    def torn(*_):
        raise LookupError("torn")

    kind = type("Torn", (Library,), {"array": speaking("Torn", ("dlpack",), capsule=torn)})
    report = check_producer(kind)
    by_it = [one.name for one in report.failed if one.raised == "LookupError: torn"]
    assert len(by_it) > 10
    (cause,) = (one.name for one in report.causes if one.raised)
    assert {report.follows.get(name, cause) for name in by_it} == {cause}
    assert f"({len(report.causes)} cause" in report.summary()


def test_a_device_that_is_not_the_tensors_is_the_cause_of_what_fails_behind_it():
    by_name = {one.name: one for one in requirements("producer")}
    failed = [
        Verdict(by_name[name], "failed", "", cases=(Case(),))
        for name in ("dlpack-same-device", "dlpack-pending", "dlpack-pending-default")
    ]
    report = Report("a library", "producer", "the device", tuple(failed))
    assert [one.name for one in report.causes] == ["dlpack-same-device"]


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


def test_an_adapter_of_a_function_says_its_line():
    def make(shape, dtype):
        return Library.array.empty(shape, dtype)

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

    report = check_producer(Failing, lab=lab, only="cai-readonly")
    traceback = report["cai-readonly"].traceback
    assert "raise ZeroDivisionError" in traceback
    assert "The above exception was the direct cause" in traceback
    assert traceback.endswith("RuntimeError: not today")
    assert "cai_bridge" not in traceback
    assert "    RuntimeError: not today\n\n    # cai-readonly: " in str(report)


def test_what_the_kit_itself_raises_is_told_too(lab):
    class Wrong(ProducerAdapter):
        def make(self, shape, dtype):
            return type("Odd", (), {"__cuda_array_interface__": {"shape": 3}})()

    found = judged(Wrong, lab, "cai-typestr")
    assert found.outcome == "failed"
    assert "KeyError: 'typestr'" in found.traceback


@pytest.mark.parametrize(("at", "is_told"), [(0, False), (4, False), (8, False), (2, True)])
def test_a_slice_next_to_the_array_is_a_copy_and_one_that_reaches_beyond_is_none(at, is_told, lab):
    x = Library.array.empty((12,), "float32")
    ptr = x.region.ptr
    lab.put(x.region, [float(place) for place in range(12)])
    part, whole = (Region(ptr + 4 * one, (4,), (4,), "float32", 4) for one in (at, 4))
    if is_told:
        with pytest.raises(UnmetError, match="reaches from byte -8 to 8 of the array's 16"):
            items(lab, part, whole)
    else:
        assert items(lab, part, whole) == [float(place) for place in range(at, at + 4)]


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
    x = Library.array.empty((2,), "float32")
    notes = {0: "ptr: the specification asks for 0 where there are no items"}
    for extent in (0, 2):
        entries = {"shape": (extent,), "typestr": "<f4", "version": 3, "strides": None}
        (said,) = describe(OnlyCai({**entries, "data": (x.region.ptr, False)}))
        assert notes.get(extent) in (*said.notes, None)
        assert bool(said.notes) == (extent in notes)


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


def test_a_lab_on_the_device_that_is_in_place_leaves_it_there():
    with simulated_cuda() as cuda:
        with open_lab() as lab:
            assert lab.cuda is cuda
        assert SimulatedCuda.current() is cuda


def test_what_of_an_array_could_not_be_compared_is_told(lab):
    evidence = judged(simulated.Producer, lab, "both-agree").evidence
    assert evidence.startswith("CAI and capsule (")
    assert "more not judged, such as layout 'columns': the adapter has no strided()" in evidence
    whole = judged(Library, lab, "both-agree").evidence
    assert whole.startswith("exchange API and CAI and capsule (")


def test_several_faults_fail_by_the_name_of_each(lab):
    names = [
        "rows are told to begin where their memory does",
        "rows of a tensor begin where their memory does",
        "the last stream alone is waited for",
        "every dl_device but the CPU is served",
    ]
    rows = [planted.rows("planted")["producer", name] for name in names]
    caught = {one for row in rows for one in row["caught"]}
    change = [text for row in rows for text in row["change"]]
    report = check_producer(planted.library("producer", "bad", {"change": change}), lab=lab)
    assert caught <= {one.name for one in report.failed}
    # What else failed is told with its likely cause.
    causes = {one.name for one in report.causes if one.requirement.level == "must"}
    assert causes <= caught
    assert not report.ok
