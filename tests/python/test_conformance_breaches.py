"""Further ways to break a requirement, and a library that breaks several at once."""

from __future__ import annotations

from functools import partial

import producers
import pytest
import small_library
from producers import Array, Library, device, exporting, pending, saying, speaking

from cai_bridge.conformance import (
    CaiArray,
    Report,
    UnmetError,
    Verdict,
    check_producer,
    expect_copied,
    open_lab,
    requirements,
)
from cai_bridge.conformance.cases import Case
from cai_bridge.conformance.libraries import simulated
from cai_bridge.testing import RaceError, simulated_cuda

judged = partial(producers.judged, None)


def zero_while_pending(self):
    if not pending(self):
        return None
    self._memory.order_before(device().legacy)
    return 0


@pytest.mark.parametrize("stream", [zero_while_pending, lambda a: True if pending(a) else None])
def test_a_stream_that_is_wrong_only_while_work_is_pending_is_found(stream):
    assert judged("cai-stream", ready_stream=stream).outcome == "failed"


@pytest.mark.parametrize("typestr", ["<i4", "<u4", "<f2", "<f8", "<V4", "|f3"])
def test_a_typestr_of_another_type_is_found(typestr):
    found = judged("cai-typestr", interface=saying(typestr=lambda *_: typestr))
    assert found.outcome == "failed"
    assert typestr in found.evidence


@pytest.mark.parametrize("lanes", [0, 2])
def test_lanes_that_are_not_one_are_found(lanes):
    capsule = exporting(dtype=lambda a: (producers.CODES[a._region.dtype], 32, lanes))
    found = judged("dlpack-dtype", doors=("dlpack",), capsule=capsule)
    assert (found.outcome, found.evidence) == ("failed", f"float32 has {lanes} lanes")


def test_a_producer_that_makes_the_host_wait_is_advised():
    def order_for(self, stream):
        for one in self._memory.streams:
            one.synchronize()

    assert judged("dlpack-pending", order_for=order_for).outcome == "passed"
    found = judged("dlpack-no-host-wait", order_for=order_for)
    assert (found.outcome, found.evidence) == ("failed", "the host waited for the write")
    assert found.requirement.level == "should"


@pytest.mark.parametrize(
    "wait",
    [
        lambda stream: stream.synchronize(),
        lambda stream: stream.record().synchronize(),
        lambda _: device().synchronize(),
    ],
    ids=["for the stream", "for an event", "for all streams"],
)
def test_each_call_that_waits_on_the_host_is_noticed(wait):
    def order_for(self, stream):
        for one in self._memory.streams:
            wait(one)

    found = judged("dlpack-no-host-wait", order_for=order_for)
    assert (found.outcome, found.evidence) == ("failed", "the host waited for the write")


def test_a_race_is_a_failure_though_the_values_are_right(monkeypatch):
    with open_lab("simulated") as lab:
        x, theirs, mine = CaiArray(lab, (8,)), lab.stream(), lab.stream()
        late = x.write_late(theirs, 5.0)
        lab.order(theirs.handle, mine.handle)
        assert "read what was written" in lab.expect_read(mine.handle, x.region, late, "so")
        monkeypatch.setattr(lab, "reports", lambda: ["race: told by the device"])
        with pytest.raises(UnmetError, match="so, and nothing orders the two: race: told by"):
            lab.expect_read(mine.handle, x.region, late, "so")
        with pytest.raises(UnmetError, match="race: told by the device"):
            expect_copied(simulated.Consumer(), lab, (Seen([5.0]), mine), late, "so")


class Seen:
    def __init__(self, value):
        self.value = value


def test_values_that_are_right_in_part_are_a_failure():
    with open_lab("simulated") as lab:
        x, theirs = CaiArray(lab, (8,)), lab.stream()
        late = x.write_late(theirs, 5.0)
        lab.synchronize()
        lab.put(lab.words(x.region.ptr, 1), 4.0)
        with pytest.raises(
            UnmetError, match=r"so, but the read saw other items: 4.0 instead of 5.0"
        ):
            lab.expect_read(theirs.handle, x.region, late, "so")
        copied = simulated.Consumer(), lab, (Seen([4.0, 5.0]), theirs)
        with pytest.raises(UnmetError, match=r"the copy saw \[4.0, 5.0\]"):
            expect_copied(*copied, late, "so")


def test_other_items_are_not_taken_for_a_race():
    found = judged("cai-pending", doors=("cai",), interface=saying(typestr=lambda *_: "<i4"))
    assert found.outcome == "failed"
    assert "nothing orders" not in found.evidence
    assert "saw other items" in found.evidence


def test_a_slice_that_is_said_to_be_elsewhere_is_no_copy():
    def interface(self):
        data, flag = Array.interface(self)["data"]
        shifted = data + 4 * (data != self._memory.ptr)
        return {**Array.interface(self), "data": (shifted, flag)}

    found = judged("cai-pending-on-two", doors=("cai",), interface=interface)
    assert found.outcome == "failed"
    assert found.evidence == "x[32:64] is said to begin 132 bytes behind x, and not 128"


def test_a_copy_on_the_host_that_nothing_wrote_is_told_without_its_numbers(monkeypatch):
    numbers = iter(range(1 << 20))
    monkeypatch.setattr(
        "cai_bridge.conformance.producer.dlpack_arguments.on_host",
        lambda lab, said: [1e30 + next(numbers) * 1e25 for _ in range(said.size)],
    )
    # The kit's own library is read so as well, and the lab is not to be in doubt here.
    monkeypatch.setattr("cai_bridge.conformance.judging._of_the_kits_own", lambda *_: None)
    found = check_producer(small_library.Producer, only="dlpack-host-copy")["dlpack-host-copy"]
    assert found.outcome == "failed"
    assert "it holds memory that nothing had written, and the array " in found.evidence


@pytest.mark.parametrize("made", [lambda *_: None, lambda *_: [1.0], lambda *_: 3])
def test_what_makes_no_arrays_is_no_success(made):
    report = check_producer(made, name="nothing")
    assert not report.ok
    assert "nothing was judged" in str(report)


def test_an_exit_is_a_failure_and_an_interrupt_is_not_one():
    def leave(*_):
        raise SystemExit(0)

    def interrupt(*_):
        raise KeyboardInterrupt

    assert (
        check_producer(leave, only="cai-shape").failed[0].evidence.startswith("raised SystemExit")
    )
    with pytest.raises(KeyboardInterrupt):
        check_producer(interrupt, only="cai-shape")


def test_an_exception_without_a_text_is_a_failure():
    class MuteError(Exception):
        def __str__(self):
            raise ValueError

    def fail(*_):
        raise MuteError

    found = check_producer(fail, only="cai-shape").failed[0]
    assert found.evidence == "raised MuteError: its text raised ValueError"


@pytest.mark.parametrize("picked", ["strided", "sliced", "reversed"])
def test_what_indexing_raises_by_mistake_is_a_failure(picked):
    class Mistaken(Library):
        pass

    def fail(self, index):
        raise RuntimeError("out of luck")

    Mistaken.array = speaking("Mistaken", __getitem__=fail)
    name = {"strided": "cai-values", "sliced": "cai-offset", "reversed": "cai-reversed"}[picked]
    found = check_producer(Mistaken, only=name)[name]
    assert found.outcome == "failed"
    assert found.evidence.startswith("raised RuntimeError: out of luck")


def test_what_was_found_before_is_not_forgotten():
    with simulated_cuda(check=False) as cuda:
        x, first, second = cuda.array([1.0]), cuda.stream(), cuda.stream()
        first.fill(x, 3.0)
        second.fill(x, 4.0)
        with pytest.raises(RaceError):
            check_producer(Library, only="cai-shape")
        assert len(cuda.reports) == 1


# --- six faults at once ---------------------------------------------------------------------------


class SixFaults(Library):
    """A small library that is right at first sight."""

    class Own(producers.Cai, producers.DLPack, Array):
        def interface(self):
            said = Array.interface(self)
            strides = said["strides"] and tuple(map(abs, said["strides"]))
            ptr, flag = said["data"]
            return {**said, "data": (self.first() if ptr else 0, flag), "strides": strides}

        def first(self):
            """Where it begins; rows are taken to begin where the array does."""
            rows = len(self._region.shape) == 2 and self.contiguous
            return self._memory.ptr if rows else self._region.ptr

        def capsule(self, stream, max_version, dl_device, copy):
            if stream == 2 and not pending(self):  # which is advice
                raise ValueError("stream: got 2")
            if dl_device == (1, 0):
                dl_device = None
            return Array.capsule(self, stream, max_version, dl_device, copy)

        def managed(self, form="versioned", **fields):
            region = self._region
            fields.setdefault("ptr", self.first() if region.size else 0)
            strides = [abs(step) // region.itemsize for step in region.strides]
            return Array.managed(self, form, **{"strides": strides, **fields})

        def order_for(self, stream):
            for last in self._memory.streams[-1:] if stream not in (-1, 2) else ():
                device().stream_of(stream or 1).wait(last.record())

    array = Own


FAULTS = {
    "the offset of a slice is ignored": {"cai-offset", "dlpack-offset"},
    "the last of two streams is waited for": {"dlpack-pending-on-two"},
    "stream=2 is ignored": {"dlpack-pending", "dlpack-pending-default"},
    "negative strides are positive": {"cai-reversed", "dlpack-reversed"},
    "dl_device=(1, 0) is memory of the GPU": {"dlpack-dl-device"},
}


def test_a_library_with_six_faults_fails_by_the_name_of_each():
    report = check_producer(SixFaults)
    failed = {one.name for one in report.failed}
    for names in FAULTS.values():
        assert names <= failed
    named = set().union(*FAULTS.values())
    # What else failed is told with its likely cause.
    assert {one.name for one in report.causes} <= named | {"dlpack-streams"}
    assert failed - named - {"dlpack-streams"} <= report.follows.keys()
    # None of them is advice alone: each by itself fails a run.
    assert named <= {one.name for one in requirements() if one.level == "must"}
    assert report["dlpack-pending-on-two"].evidence.count("nothing orders the one after") == 1
    assert not report.ok


# --- one cause of several failures ----------------------------------------------------------------


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
