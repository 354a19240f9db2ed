"""`trace` where a call or an end is interrupted, refused by an argument's type, or orders twice."""

import pytest
from copies import taken
from fakes import only_cai
from traces import Trace

from cai_bridge import convert, from_cai, to_cai, trace

INTERRUPTS = [KeyboardInterrupt, SystemExit, MemoryError]


class Interrupted:
    """A stream object that is interrupted while it is asked for its stream."""

    def __init__(self, stream, error):
        self.stream, self.error, self.now = stream, error, False

    def __cuda_stream__(self):
        if self.now:
            raise self.error
        return (0, self.stream.handle)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


def on(stream, device=0):
    return f"cuda:{device} streams / {stream.name} {stream.handle:#x}"


FLAGS = {
    "to_cai": lambda cuda: to_cai(cuda.array(shape=4), readonly="yes"),
    "from_cai": lambda cuda: from_cai(only_cai(cuda.array(shape=4)), readonly="yes"),
    "convert": lambda cuda: convert(cuda.array(shape=4), "cai", readonly="yes"),
    "__dlpack__": lambda cuda: from_cai(only_cai(cuda.array(shape=4))).__dlpack__(copy="yes"),
}


@pytest.mark.parametrize("door", FLAGS)
def test_a_flag_that_is_none_is_a_slice_with_the_error(door, path, cuda):
    with trace(path), pytest.raises(TypeError):
        FLAGS[door](cuda)
    (refused,) = [e for e in Trace(path).slices("exchange") if "error" in e["args"]]
    assert (refused["name"], refused["args"]["error"].split(":")[0]) == (door, "TypeError")


@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_interrupted_hand_over_is_a_slice_with_the_interrupt(error, path, cuda):
    stream = Interrupted(cuda.stream("c"), error)
    x = cuda.array(shape=4)
    stream.now = True
    with trace(path), pytest.raises(error):
        to_cai(x, stream=stream)
    (refused,) = Trace(path).slices("exchange")
    assert refused["args"]["error"].startswith(error.__name__)


@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_interrupted_release_failed_and_the_next_one_is_done(error, path, cuda):
    stream = Interrupted(cuda.stream("c"), error)
    view = to_cai(cuda.array(shape=4, stream=cuda.stream("p"), speaks="cai3"), stream=stream)
    with trace(path):
        stream.now = True
        with pytest.raises(error):
            view.release()
        stream.now = False
        view.release()
    assert Trace(path).releases() == [("release()", "failed"), ("release()", "done")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_interrupted_end_of_a_copy_is_put_off_and_done_later(error, path, cuda):
    stream = Interrupted(cuda.stream("c"), error)
    copy = taken(from_cai(cuda.array([1.0], speaks="cai", memory="pool")), stream=stream)
    with trace(path):
        stream.now = True
        copy.delete()
        stream.now = False
        # A call ends a few of all that is kept, which may be more here: what other tests have left.
        for _ in range(50):
            to_cai(cuda.array([1.0]))
    ends = [e["args"] for e in Trace(path).slices("release") if e["args"]["what"] == "copy"]
    assert [end["outcome"] for end in ends] == ["put off", "done later"]


@pytest.mark.parametrize("device", [0, 1])
def test_a_copy_is_an_arrow_to_the_memorys_own_stream_and_one_to_the_declared(device, path, cuda):
    p, d, c = cuda.stream("p"), cuda.stream("d"), cuda.stream("c", device=device)
    x = cuda.array([1.0], stream=p, speaks="cai3")
    d.wait(p.record())
    view = from_cai(to_cai(x), stream=d)
    with trace(path):
        copy = view.__dlpack__(stream=c, dl_device=(2, device), copy=True)
    consumer = on(c, device)
    assert Trace(path).arrows == [(on(d), consumer), (consumer, on(p)), (consumer, on(d))]
    cuda.synchronize()
    assert copy


def test_an_empty_copy_is_no_copy_and_its_end_waits_for_nothing(path, cuda):
    view = from_cai(cuda.array(shape=0, speaks="cai3"))
    with trace(path):
        taken(view, stream=-1).delete()
    seen = Trace(path)
    assert seen.slices("copy") == seen.marks("copy") == []
    ends = [e["args"] for e in seen.slices("release") if e["args"]["what"] == "copy"]
    assert [(end["ptr"], end["outcome"]) for end in ends] == [("0x0", "done")]
