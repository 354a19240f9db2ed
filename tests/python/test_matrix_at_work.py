"""What the matrix says of pending work, where times and values tell as well as reports."""

from __future__ import annotations

import warnings

import pytest
from matrix_libraries import (
    BY_CAI,
    BY_DLPACK,
    Blocks,
    Heedless,
    Nameless,
    OldDict,
    Producer,
    device,
    judged,
    lab,
)

from cai_bridge.conformance.lab.simulated import SimulatedLab
from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.matrix import ROUTES, routes, run_matrix
from cai_bridge.testing import SimulatedCuda

__all__ = ["device", "lab"]


class Hold:
    pending = True

    def release(self):
        self.pending = False


class Timed(SimulatedLab):
    """Like a GPU: nothing is reported, so that the times and the values tell."""

    timed = True
    early = busy = False

    def __init__(self, cuda):
        super().__init__(cuda, own=False)
        self.holds = []

    def hold(self, stream):
        self.holds.append(Hold())
        return self.holds[-1]

    def overtakes(self, stream, hold):
        # Time passes, and what is queued there comes first.
        if self.busy:
            return None
        if stream is None:
            return False
        self.wait(stream)
        return self.early

    def reports(self):
        super().reports()
        return []


@pytest.fixture
def timed(device):
    return Timed(device)


def test_a_next_write_that_comes_first_is_told_by_the_values(timed):
    said = judged(timed, Producer, Heedless, "release", BY_DLPACK)
    assert (said.outcome, said.wrong, said.rounds) == ("wrong", 1, 1)
    # Arrays are large where times tell.
    assert "saw what the producer wrote next: 32768 of 32768 items were 0.0" in said.detail


def test_a_read_that_comes_first_is_told_where_the_stream_has_a_name(timed):
    timed.early = True
    said = judged(timed, Producer, Heedless, "handover", BY_DLPACK)
    assert said.outcome == "wrong"
    assert said.detail.endswith("the read was done while the write was held back")
    assert judged(timed, Producer, Nameless, "handover", BY_DLPACK).outcome == "right"


@pytest.mark.parametrize("aspect", ["handover", "release"])
@pytest.mark.parametrize("consumer", [Heedless, Nameless])
def test_a_device_that_is_too_busy_for_an_idle_stream_shows_nothing(timed, aspect, consumer):
    timed.busy = True
    said = judged(timed, Producer, consumer, aspect, "from_cai(to_cai(x))")
    assert said.outcome == "none"


def test_what_is_held_back_is_let_go_of_before_it_is_waited_for(timed):
    class Hangs(Heedless):
        def values(self, copied):
            assert not any(hold.pending for hold in timed.holds)
            return super().values(copied)

    assert judged(timed, Producer, Hangs, "handover", BY_DLPACK).outcome == "right"
    assert judged(timed, Producer, Hangs, "release", "to_cai(x)").outcome == "right"
    assert timed.holds


def test_how_long_the_host_is_held_is_told_where_times_tell(lab, timed):
    said = judged(timed, Producer, Heedless, "host", BY_CAI)
    assert (said.outcome, said.detail) == ("right", f"the host is held for {said.ms:.3f} ms")
    said = judged(timed, Producer, Blocks, "host", BY_CAI)
    assert (said.outcome, said.detail) == ("waits", f"the host is held for {said.ms:.3f} ms")
    said = judged(lab, Producer, Heedless, "host", BY_CAI)
    assert (said.outcome, said.detail) == ("right", "the host does not wait")
    said = judged(lab, Producer, Blocks, "host", BY_CAI)
    assert (said.outcome, said.detail) == ("waits", "the host waits")


def test_a_producer_whose_streams_have_no_names_is_judged_by_what_it_writes_next(lab):
    class Unnamed(Producer):
        def stream(self):
            return None

    assert judged(lab, Unnamed, Heedless, "release", BY_DLPACK).outcome == "wrong"
    assert judged(lab, Unnamed, Heedless, "release", "from_cai(to_cai(x))").outcome == "right"


class OfTheMoment:
    """An array whose exports are ordered by its library's current stream, as PyTorch's."""

    def __init__(self, library, array):
        self._library, self._array = library, array

    @property
    def __cuda_array_interface__(self):
        said = self._array.__cuda_array_interface__
        return {**said, "version": 3, "stream": self._library.current.handle}

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream, **wishes):
        event = self._library.current.record()
        SimulatedCuda.current().stream_of(stream).wait(event)
        return self._array.__dlpack__(stream=-1, **wishes)


class ByCurrent(Producer):
    """Remembers no stream."""

    def make(self, shape, dtype):
        cuda = SimulatedCuda.current()
        array = cuda.array(
            shape=shape,
            dtype=dtype,
            speaks=("dlpack", "cai2"),
            stream=self.current,
            memory="pool",
        )
        return OfTheMoment(self, array)

    def full(self, shape, dtype, value):
        array = self.make(shape, dtype)
        self.fill(array, value)
        return array

    def fill(self, array, value):
        self.current.fill(array._array, value)


def test_the_producers_stream_is_current_while_its_own_export_is_taken(lab):
    assert judged(lab, ByCurrent, simulated.Consumer, "handover", BY_DLPACK).outcome == "right"
    # The dict names the stream, which the consumer gives the array back on.
    assert judged(lab, ByCurrent, simulated.Consumer, "release", BY_CAI).outcome == "right"


@pytest.mark.parametrize("aspect", ["handover", "host", "release"])
def test_a_host_that_waits_for_what_is_loaded_once_does_not_wait(lab, aspect):
    class Loads(Heedless):
        loaded = False

        def copy(self, array):
            if not self.loaded:
                self.current.synchronize()
                self.loaded = True
            return super().copy(array)

    assert judged(lab, Producer, Loads, aspect, "to_cai(x, stream=s)").outcome == "right"


def test_what_is_not_wrong_was_wrong_in_no_round(lab, monkeypatch):
    def counted(consumer, aspect, route):
        said = judged(lab, Producer, consumer, aspect, route)
        return said.outcome, said.wrong, said.rounds

    assert counted(Heedless, "handover", BY_DLPACK) == ("right", 0, 1)
    assert counted(Blocks, "handover", BY_CAI) == ("waits", 0, 1)
    hold = Hold()
    hold.release()
    monkeypatch.setattr(lab, "hold", lambda stream: hold)
    assert counted(Heedless, "handover", BY_DLPACK) == ("none", 0, 1)
    assert counted(Heedless, "release", "to_cai(x)") == ("none", 0, 1)


def test_a_view_that_was_not_told_the_consumers_stream_is_released_on_it(lab, monkeypatch):
    streams, released = [], []

    class View:
        def __init__(self, array):
            self.__cuda_array_interface__ = array.__cuda_array_interface__

        def release(self, stream):
            released.append(stream)

    class Named(Heedless):
        def stream(self):
            streams.append(super().stream())
            return streams[-1]

    monkeypatch.setattr(routes, "to_cai", View)
    (route,) = [one for one in ROUTES if one.name == "to_cai(x)"]
    monkeypatch.setattr("cai_bridge.conformance.matrix.run.chosen", lambda ways: (route,))
    run_matrix([Producer], [Named], lab=lab, aspects=["release"])
    # The first round is not counted.
    assert released == streams * 2


def test_nothing_is_left_behind_where_a_consumer_refuses_too_late(lab):
    queued = []

    class ReadsAndRefuses(Heedless):
        def take(self, x):
            region, _ = super().take(x)
            # On a stream that nothing orders behind the write.
            queued.append(self.stream().read(region))
            raise BufferError("not today")

    matrix = run_matrix([OldDict], [ReadsAndRefuses], lab=lab, aspects=["handover"])
    assert {one["handover"].outcome for one in matrix.cells} == {"refused"}
    assert len(queued) == len(ROUTES)
    assert all(one.done for one in queued)
    assert lab.reports() == []


def test_what_libraries_warn_of_is_no_refusal(lab):
    class Warns(Heedless):
        def take(self, x):
            warnings.warn("slow", stacklevel=1)
            return super().take(x)

    matrix = run_matrix([Producer], [Warns], lab=lab, aspects=["values"])
    assert {one["values"].outcome for one in matrix.cells} == {"right"}
