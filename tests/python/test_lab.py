"""What a lab does for the checks: what it names, what it forgets, and what it does not let pass."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
import weakref
from types import SimpleNamespace

import capsules
import ml_dtypes
import numpy as np
import pytest
import small_consumer
import small_library
from fakes import StreamObject

from cai_bridge.conformance import NotApplicableError, UnmetError, check_consumer, check_producer
from cai_bridge.conformance.lab import CaiArray, DLPackArray, Late, handle_of
from cai_bridge.conformance.lab.array import FILLER, GUARD, LabArray
from cai_bridge.conformance.lab.cuda import NOT_READY
from cai_bridge.conformance.lab.gpu import GpuLab
from cai_bridge.conformance.lab.gpu_objects import GpuStream, Memory, Spare
from cai_bridge.conformance.lab.simulated import HOST_WAITS
from cai_bridge.conformance.places import shared_places
from cai_bridge.conformance.producer.arrays import collect
from cai_bridge.testing._kit.said import Said


class Held:
    """A hold that says whether it held when the read was queued, and notes when it is let go of."""

    def __init__(self, lab, *, pending=True):
        self.lab, self.pending = lab, pending
        self.released: list[int] = []

    def release(self):
        self.released.append(waits(self.lab))


def waits(lab):
    """How often the host has waited for the device."""
    return sum(wait in one.call for one in lab.cuda.calls for wait in HOST_WAITS)


def raced(lab):
    """An array with a write on one stream and a read on another, which nothing orders."""
    x = written(lab)
    x.other = lab.stream()
    lab.read(x.other.handle, x.region)
    return x


def written(lab):
    """An array with a write that is queued and has not run."""
    x = CaiArray(lab)
    x.own = lab.stream()
    lab.write(x.own.handle, x.region, 5.0)
    assert lab.get(x.region) == x.values
    return x


def has_run(lab, x):
    return bool(lab.get(x.region) == [[5.0] * 4] * 3)


def test_an_array_that_refuses_keeps_no_frames_of_who_asked(lab):
    error = BufferError("not this one")
    x = DLPackArray(lab, error=error)
    with pytest.raises(BufferError, match="not this one"):
        x.__dlpack__()
    assert error.__traceback__ is None


def test_a_race_that_a_check_leaves_behind_fails_it_and_one_of_before_does_not(lab):
    before = raced(lab)
    with lab.fresh():
        assert has_run(lab, before)
    with pytest.raises(UnmetError, match=r"race: .* nothing orders the one after"), lab.fresh():
        _x = raced(lab)
    assert lab.reports() == []


def test_nothing_is_pending_when_a_check_begins_and_when_it_has_ended(lab):
    before = written(lab)
    with lab.fresh():
        assert has_run(lab, before)
        meanwhile = written(lab)
    assert has_run(lab, meanwhile)


def test_what_a_check_that_raised_has_left_is_not_the_next_ones(lab):
    left = []

    def check():
        left.append(raced(lab))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), lab.fresh():
        check()
    assert has_run(lab, left[0])
    assert lab.reports() == []


def test_a_timed_check_collects_what_it_made_alone_and_freezes_nothing_for_good(lab, monkeypatch):
    monkeypatch.setattr(lab, "timed", True)

    def cycle():
        one = Held(lab)
        one.itself = one
        return weakref.ref(one)

    before = cycle()
    with lab.fresh():
        within = cycle()
        collect()
        assert within() is None
        assert before() is not None, "a collection of all takes longer than a hold lasts"
        left = cycle()
    assert left() is None
    gc.collect()
    assert before() is None


def test_a_held_back_write_is_let_go_of_before_the_host_waits_for_the_read(lab):
    stream, x, hold = lab.stream(), CaiArray(lab), Held(lab)
    lab.write(stream.handle, x.region, 5.0)
    before = waits(lab)
    told = lab.expect_read(stream.handle, x.region, Late(x, stream, 5.0, hold), "asked")
    assert told == "asked, and read what was written"
    assert hold.released == [before]
    assert waits(lab) > before


@pytest.mark.parametrize("pending", [True, False])
def test_rounds_in_which_nothing_was_held_back_tell_nothing(pending, lab):
    stream, x = lab.stream(), CaiArray(lab)

    def judged(pending):
        for value in lab.values():
            lab.write(stream.handle, x.region, value)
            late = Late(x, stream, value, Held(lab, pending=pending))
            lab.expect_read(stream.handle, x.region, late, "asked")

    # What was shown in a check before is nothing to this one.
    judged(pending=True)
    if pending:
        judged(pending)
    else:
        with pytest.raises(NotApplicableError, match="each time what was held back was done too"):
            judged(pending)


@pytest.mark.parametrize("told", [False, None])
def test_a_device_that_is_too_busy_for_an_idle_stream_judges_nothing(told, lab, monkeypatch):
    monkeypatch.setattr(lab, "overtakes", lambda stream, hold: told)
    outcome = "skipped" if told is None else "passed"
    pending = ("cai-pending", "cai-pending-read", "dlpack-pending", "dlpack-pending-read")
    report = check_producer(small_library.Producer, lab=lab, only=pending)
    assert {one.name: one.outcome for one in report.verdicts} == dict.fromkeys(pending, outcome)
    taken = ("takes-cai-stream", "takes-cai-pending-read", "takes-cai-return")
    taken += ("takes-dlpack-pending", "takes-dlpack-pending-read")
    report = check_consumer(small_consumer.Consumer, lab=lab, only=taken)
    assert {one.name: one.outcome for one in report.verdicts} == dict.fromkeys(taken, outcome)


class Driver:
    """A driver whose events are done after so many questions each."""

    def __init__(self, *done_after):
        self.left = [*done_after]
        self.made = 0

    def __call__(self, *_):
        pass

    def context(self):
        return contextlib.nullcontext()

    def event(self):
        self.made += 1
        return self.made - 1

    def result(self, _, event):
        self.left[event] -= 1
        return NOT_READY if self.left[event] >= 0 else 0


NEVER = float("inf")


@pytest.mark.parametrize(
    ("idle", "asked", "stream", "told"),
    [
        *((0, NEVER, 7, False), (NEVER, 3, 7, True), (0, 3, 7, True)),
        *((NEVER, NEVER, 7, None), (0, 0, None, False), (NEVER, 0, None, None)),
    ],
)
def test_what_an_idle_stream_cannot_do_tells_nothing_of_another(
    idle, asked, stream, told, monkeypatch
):
    turns = itertools.count()  # of half a millisecond each, whatever else the machine does
    clock = SimpleNamespace(perf_counter=lambda: next(turns) * 5e-4)
    monkeypatch.setattr("cai_bridge.conformance.lab.gpu.time", clock)
    lab = GpuLab.__new__(GpuLab)
    lab.driver = Driver(idle, asked)
    lab._idle = lab._small = SimpleNamespace(handle=9, ptr=4096)

    class Hold:
        left = 40

        @property
        def pending(self):
            self.left -= 1
            return self.left > 0

    assert lab.overtakes(stream, Hold()) is told


def test_each_round_has_a_value_of_its_own(lab):
    first, second = list(lab.values()), list(lab.values())
    assert len(first) == len(second) == lab.rounds
    assert second > first


def test_streams_are_named_as_in_the_protocols(lab):
    stream = lab.stream("one of ours")
    names = {
        None: "no stream",
        0: "stream 0x0",
        1: "the legacy default stream",
        2: "the per-thread default stream",
        stream.handle: "stream 'one of ours'",
        0xABCDEF: "stream 0xabcdef",
        "unsaid": "'unsaid'",
    }
    assert {one: lab.called(one) for one in names} == names


def test_a_streams_handle_is_its_own_and_0_is_the_legacy_default_stream():
    assert [handle_of(one) for one in (0, 1, 2, 4096)] == [1, 1, 2, 4096]
    objects = [StreamObject((0, handle)) for handle in (0, 1, 2, 4096)]
    assert [handle_of(one) for one in objects] == [1, 1, 2, 4096]


def test_a_stream_or_a_host_that_waits_is_seen_and_nothing_else_is(lab):
    stream, other = lab.stream(), lab.stream()
    with lab.no_waits():
        event = other.record()
    for call, wait in (
        ("cuStreamWaitEvent", lambda: stream.wait(event)),
        ("cuStreamSynchronize", stream.synchronize),
        ("cuEventSynchronize", event.synchronize),
        ("cuCtxSynchronize", lab.cuda.synchronize),
    ):
        with pytest.raises(UnmetError, match=f"asked for {call}"), lab.no_waits():
            wait()


def test_how_long_it_took_is_told_in_milliseconds(lab):
    with lab.watched() as watch:
        time.sleep(0.02)
    assert 20.0 <= watch.ms < 2000.0
    assert not watch.waited
    with lab.watched() as watch:
        lab.wait(1)
    assert watch.waited


@pytest.mark.parametrize("pending", [True, False])
def test_a_host_that_was_slow_has_not_waited_for_what_still_holds(lab, pending):
    with GpuLab.watched(lab, SimpleNamespace(pending=pending)) as watch:
        time.sleep(0.002)
    assert watch.waited is not pending


class Counting(Driver):
    """A driver that counts what it makes, and notes what it ends."""

    def __init__(self):
        super().__init__()
        self.ended: list[tuple[str, int]] = []

    def stream(self):
        return 100 + self.event()

    def get(self, *_, **_more):
        return 100 + self.event()

    def code(self, name, one):
        self.ended.append((name, one))
        return 0


def test_what_nobody_refers_to_any_more_is_used_again_once_all_work_is_done():
    driver = Counting()
    spare = Spare(driver)
    stream, memory = GpuStream(driver, "one", spare), Memory(driver, 64, None, spare=spare)
    handle, ptr = stream.handle, memory.ptr
    del stream, memory
    before = GpuStream(driver, "before", spare), Memory(driver, 64, None, spare=spare)
    spare.settle()
    other = Memory(driver, 32, None, spare=spare)
    assert not {handle, ptr} & {before[0].handle, before[1].ptr, other.ptr}
    again = GpuStream(driver, "again", spare), Memory(driver, 64, None, spare=spare)
    assert (again[0].handle, again[1].ptr) == (handle, ptr)
    assert driver.ended == []
    del again
    spare.close()
    del before, other
    assert sorted(driver.ended) == [
        *(("cuMemFree_v2", one) for one in (101, 103, 104)),
        *(("cuStreamDestroy_v2", one) for one in (100, 102)),
    ]


def test_memory_of_a_stream_may_be_used_on_it_at_once_and_on_another_in_order(lab):
    stream, other = lab.stream(), lab.stream()
    memory = lab.memory(64, stream.handle)
    region = lab.words(memory.ptr, 16)
    lab.write(stream.handle, region, 5.0)
    assert lab.reports() == []
    lab.write(other.handle, region, 6.0)
    assert lab.reports() != []
    lab.synchronize()


@pytest.mark.parametrize("field", ["ptr", "shape", "strides", "itemsize"])
def test_an_array_that_cannot_be_found_is_told_with_what_is_missing(field, lab):
    whole = {"ptr": 4096, "shape": (4,), "strides": (4,), "itemsize": 4, "dtype": "float32"}
    assert lab.region(Said("CAI", **whole)).ptr == 4096
    with pytest.raises(UnmetError, match=f"^CAI does not say {field}$"):
        lab.region(Said("CAI", **{**whole, field: None}))
    with pytest.raises(UnmetError, match=r"^CAI could not be read: RuntimeError: no$"):
        lab.region(Said("CAI", **whole, error="RuntimeError: no"))


def half(ptr, items=512):
    return {"shape": (items,), "typestr": "<f4", "data": (ptr, False), "version": 3}


def test_halves_of_an_array_lie_in_it_or_are_copies_or_are_wrong():
    x = half(8192, items=1024)
    assert shared_places(x, (half(8192), half(8192 + 2048)), 512) == [8192, 8192 + 2048]
    # Directly behind the array is not in it.
    for copies in ((4096, 6144), (8192 + 4096, 8192 + 6144)):
        with pytest.raises(NotApplicableError, match="slices of the arrays are copies"):
            shared_places(x, (half(copies[0]), half(copies[1])), 512)
    with pytest.raises(
        UnmetError, match=r"^x\[512:1024\] is said to begin 4092 bytes behind x, and "
    ):
        shared_places(x, (half(8192), half(8192 + 4092)), 512)
    with pytest.raises(UnmetError, match=r"^x\[:512\] is said to begin 2048 bytes behind x, and "):
        shared_places(x, (half(8192 + 2048), half(8192 + 2048)), 512)


def test_an_array_without_items_is_at_0(lab):
    assert CaiArray(lab, (0, 3)).__cuda_array_interface__["data"] == (0, False)
    tensor = capsules.read(DLPackArray(lab, (0, 3)).__dlpack__())
    assert (tensor.data, tensor.byte_offset) == (0, 0)


@pytest.mark.parametrize(
    ("asked", "version"),
    [(None, None), ((0, 8), None), ((1, 0), (1, 3)), ((1, 3), (1, 3)), ((2, 0), (1, 3))],
)
def test_a_tensor_is_as_it_is_asked_for(asked, version, lab):
    for offset in (0, 16):
        x = DLPackArray(lab, (3, 2), lanes=2, **({"byte_offset": offset} if offset else {}))
        tensor = capsules.read(x.__dlpack__(max_version=asked))
        assert tensor.version == version
        assert x.forms == ["legacy" if version is None else "1.3"]
        assert (tensor.ptr, tensor.byte_offset) == (x.region.ptr, offset)
        # The lanes are in the place of the last dimension.
        assert (tensor.shape, tensor.strides, tensor.dtype) == ((3,), (1,), (2, 32, 2))


def test_a_read_only_array_is_refused_to_who_takes_only_legacy_tensors(lab):
    x = DLPackArray(lab, readonly=True)
    with pytest.raises(BufferError, match=r"max_version: got None; allowed: 1\.0 or later for re"):
        x.__dlpack__()
    assert x.forms == []
    assert capsules.read(x.__dlpack__(max_version=(1, 0))).readonly


@pytest.mark.parametrize("device", [(1, 0), (2, 1), (2, 0)])
def test_only_what_is_said_to_be_the_cpus_is_in_its_memory(device, lab):
    x = DLPackArray(lab, device=device)
    assert x.__dlpack_device__() == device
    assert (lab.device_of(x.region.ptr) is None) is (device[0] == 1)


SHAPE = (3, 4)
ITEMS = 12
# Where the first item is, the strides and how many there are, in items.
LAYOUTS = {
    "C": (0, (4, 1), ITEMS),
    "F": (0, (1, 3), ITEMS),
    "columns": (0, (8, 2), 2 * ITEMS),
    "reversed": (8, (-4, 1), ITEMS),
    "repeated": (0, (0, 1), ITEMS),
}


def made(lab, dtype="float32", layout="C", value=None):
    return LabArray(lab, SHAPE, dtype, layout, value)


FLOATS_OF_8_BITS = [name for name in dir(ml_dtypes) if name.startswith("float8_")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_items_are_counted_by_where_they_lie_and_nothing_else_is_written(layout, lab):
    offset, strides, number = LAYOUTS[layout]
    x = made(lab, "int32", layout)
    assert x.region.ptr - x.memory.ptr == GUARD + 4 * offset
    assert x.region.strides == tuple(4 * step for step in strides)
    memory = x.contents()
    assert len(memory) == GUARD + 4 * number + GUARD
    filler = bytes([FILLER])
    assert memory[:GUARD] == memory[-GUARD:] == filler * GUARD
    inside = np.frombuffer(memory[GUARD:-GUARD], "int32")
    places = offset + np.add.outer(np.arange(3) * strides[0], np.arange(4) * strides[1])
    assert np.array_equal(inside[places], x.values)
    assert np.array_equal(x.values, places + 1)
    others = np.delete(inside, places.ravel())
    assert others.tobytes() == filler * others.nbytes


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("bool", [True, False, True, False]),
        ("uint8", [1, 2, 3, 4]),
        ("float16", [1.0, 2.0, 3.0, 4.0]),
        ("bfloat16", [1.0, 2.0, 3.0, 4.0]),
        ("complex64", [1 + 0j, 2 - 1j, 3 - 2j, 4 - 3j]),
    ],
)
def test_what_items_of_a_type_hold(dtype, values, lab):
    row = made(lab, dtype).values[0]
    assert row == values
    assert [type(one) for one in row] == [type(one) for one in values]
    assert made(lab, dtype, value=1).values == [[1] * 4] * 3


@pytest.mark.parametrize("dtype", FLOATS_OF_8_BITS)
def test_floats_of_8_bits_are_ones_and_twos_by_their_bits_or_numbers(dtype, lab):
    x = made(lab, dtype)
    bits = np.array(x.values, np.uint8)
    numbers = bits.view(getattr(ml_dtypes, dtype)).astype(float)
    assert numbers.tolist() == [[1.0, 2.0] * 2] * 3
    assert x.holds(bits.tolist())
    assert x.holds(numbers.tolist())
    assert not x.holds(numbers[::-1, ::-1].tolist())
    assert not x.holds((bits + 1).tolist())


def test_items_in_the_other_byte_order(lab):
    x = made(lab, "int16")
    x.swap_bytes()
    assert x.contents()[GUARD:-GUARD] == np.arange(1, 13, dtype=">i2").tobytes()


def test_a_layout_that_there_is_not_is_refused(lab):
    with pytest.raises(ValueError, match=r"layout: got 'diagonal'; allowed: 'C', "):
        CaiArray(lab, layout="diagonal")
