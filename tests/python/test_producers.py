"""How producers are asked: what is left out when an argument is refused, and on which device."""

import pytest
from capsules import HandMade
from fakes import DLPackPair

from cai_bridge import to_cai

FULL = (1, 3)


def wishes(stream, *, version=True):
    return {"stream": stream, **({"max_version": FULL} if version else {})}


@pytest.fixture
def made(cuda):
    """A maker of capsules, of the form given."""
    x = cuda.array(shape=4)
    return lambda form="versioned": HandMade(x.ptr, form=form).capsule()


def refusing(made, *names, error=TypeError, streams=()):
    """An answer that takes neither these keywords nor these streams."""

    def answer(**wishes):
        for name in names:
            if name in wishes:
                raise error(f"unexpected keyword argument {name!r}")
        if wishes.get("stream") in streams:
            raise error(f"stream {wishes['stream']} is not taken")
        return made()

    return answer


@pytest.mark.parametrize("stream", [None, 1, 2, "own", -1])
@pytest.mark.parametrize("refuses", ["nothing", "max_version", "stream"])
def test_what_a_producer_does_not_take_is_left_out(refuses, stream, made, cuda):
    producer = DLPackPair(refusing(made, refuses))
    own = cuda.stream()
    given = own.handle if stream == "own" else stream
    at = 1 if stream is None else given
    cuda.clear_calls()
    view = to_cai(producer, stream=given)
    ladder = [wishes(at), wishes(at, version=False), {}]
    assert producer.asked == ladder[: {"nothing": 1, "max_version": 2, "stream": 3}[refuses]]
    assert view.stream == (None if stream == -1 else at)
    # Whether a stranger does what it is asked, nobody knows: work that nobody named is waited for.
    recorded = [call.stream for call in cuda.calls if call.call == "cuEventRecord"]
    assert recorded == ([1] if at not in (-1, 1) else [])


def test_a_producer_that_refuses_stream_2_is_asked_for_1_and_2_is_ordered_after_it(made, cuda):
    producer = DLPackPair(refusing(made, streams=(2,), error=BufferError))
    cuda.clear_calls()
    view = to_cai(producer, stream=2)
    assert view.stream == 2
    assert producer.asked == [wishes(2), wishes(1)]
    calls = [call for call in cuda.calls if call.call in ("cuEventRecord", "cuStreamWaitEvent")]
    assert [(call.call, call.stream) for call in calls] == [
        ("cuEventRecord", 1),
        ("cuStreamWaitEvent", 2),
    ]


class Torn(Exception):
    """No exception that anybody expects."""


RAISED = [Torn("torn"), BufferError("torn"), ValueError("torn"), OSError(5, "torn")]


@pytest.mark.parametrize("raised", RAISED, ids=repr)
@pytest.mark.parametrize("stream", [-1, 2])
def test_the_last_exception_passes_through_with_the_one_before_as_its_context(stream, raised):
    first = BufferError("first")
    answers = [first, raised]

    def answer(**_):
        raise answers.pop(0)

    with pytest.raises(type(raised)) as caught:
        to_cai(DLPackPair(answer), stream=stream)
    assert caught.value is raised
    if stream == -1:
        assert raised.__context__ is first
    raised.__context__ = None


def test_an_exception_that_is_raised_twice_is_not_its_own_context():
    raised = BufferError("again")

    def answer(**_):
        raise raised

    with pytest.raises(BufferError) as caught:
        to_cai(DLPackPair(answer), stream=-1)
    # Whoever walks along the contexts, as contextlib does, would not come to an end.
    circle, raised.__context__ = raised.__context__ is raised, None
    assert caught.value is raised
    assert not circle


def test_a_producer_that_takes_no_call_at_all_has_its_first_exception_told():
    calls = []

    def answer(**wishes):
        calls.append(wishes)
        raise TypeError(f"call {len(calls)}")

    with pytest.raises(TypeError, match=r"^call 1$"):
        to_cai(DLPackPair(answer))
    assert len(calls) == 3


@pytest.mark.parametrize("device", [(2, 0), (2, 1)])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("start", [0, 1])
def test_the_producer_is_called_with_its_device_current(start, fails, device, cuda):
    x = cuda.array(shape=4, device=device[1])
    seen = []

    def answer(**_):
        seen.append(cuda.current_device)
        if fails:
            raise Torn
        return HandMade(x.ptr, device_id=device[1]).capsule()

    cuda.set_device(start)
    producer = DLPackPair(answer, device=device)
    if fails:
        with pytest.raises(Torn):
            to_cai(producer)
    else:
        assert to_cai(producer).device == device
    assert (seen, cuda.current_device) == ([device[1]], start)


def test_without_a_driver_the_producer_is_called_all_the_same():
    capsule = HandMade(4096).capsule()
    view = to_cai(DLPackPair(lambda **_: capsule))
    assert (view.ptr, view.stream) == (4096, 1)
