"""`convert` of trees: one order for all, all or nothing, and what refusals say."""

import gc

import pytest
from fakes import torch_like
from scenes import done
from stand_in import Array, count, known, library, made_on, no_libraries, producer
from test_containers import Frozen, Pair

from cai_bridge import adapt, convert, from_cai

__all__ = ["known", "library", "no_libraries", "producer"]


def test_each_pair_of_streams_has_an_event(cuda, library):
    """There and back; on its own stream nobody waits."""
    producers = [cuda.stream(), cuda.stream(), cuda.stream(device=1), library.streams[0]]
    tree = [(s, made_on(cuda, s, i, "cai3")) for i, s in enumerate(producers) for _ in "abc"]
    cuda.clear_calls()
    made = convert([x for _, x in tree], "stand_in")
    assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 3
    assert library.asked == [0, 1]
    seen = [one.read() for one in made]
    del made
    for stream, x in tree:
        stream.fill(x, -1.0, name="the producer's next write")
    cuda.synchronize()
    assert [one.value[0] for one in seen] == [0.0] * 3 + [1.0] * 3 + [2.0] * 3 + [3.0] * 3


@pytest.mark.parametrize("others", [False, True])
def test_one_event_orders_all_arrays_of_the_library_itself(cuda, library, producer, others):
    mine = cuda.stream("mine")
    own = convert([made_on(cuda, producer) for _ in range(10)], "stand_in")
    for i, one in enumerate(own):
        one.write(float(i))
    x = made_on(cuda, producer, 10.0)
    cuda.clear_calls()
    made = convert([*own, x] if others else own, "stand_in", stream=mine)
    assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 1 + others
    assert all(one is other for one, other in zip(made, own, strict=False))
    seen = [mine.read(one.view) for one in made]
    mine.synchronize()
    assert [one.value[0] for one in seen] == [float(i) for i in range(10 + others)]


@pytest.mark.parametrize("first", ["the view", "the array"])
def test_what_stands_in_for_a_stream_does_not_order_the_stream_itself(cuda, first):
    stream, own = cuda.stream("producer's"), cuda.stream("consumer's")
    x, y = (cuda.array([1.0] * 4, speaks="cai3", stream=stream, name=name) for name in "xy")
    view = from_cai(x, stream=stream.handle)  # replaced by the legacy stream, as of now
    stream.fill(y, 5.0)
    tree = [view, y] if first == "the view" else [y, view]
    made = convert(tree, "cai", stream=own)
    assert done(own.read(made[tree.index(y)])) == [5.0] * 4


def test_a_refusal_gives_all_of_it_back_and_says_where(cuda, library, producer):
    good, bad = [made_on(cuda, producer) for _ in range(3)], cuda.array([1.0], readonly=True)
    cuda.clear_calls()
    with pytest.raises(BufferError, match=r'^x\["mask"\]\[2\]: readonly: got .+; allowed: '):
        convert({"image": good[0], "mask": [good[1], 3, bad], "rest": good[2]}, "stand_in")
    gc.collect()
    assert ([x.exports for x in (*good, bad)], count(cuda, "cuEventRecord")) == ([0] * 4, 0)
    library.refused.add(good[1].ptr)
    own = convert(good[0], "stand_in")
    with pytest.raises(BufferError, match=r"^strides: got odd ones; allowed: .*\nat x\.one\[2\]$"):
        convert(Pair([own, good[0], good[1]], good[2]), "stand_in")
    del own
    gc.collect()
    assert [x.exports for x in good] == [0] * 3


@pytest.mark.parametrize("call", ["cuEventRecord", "cuStreamWaitEvent"])
def test_a_call_of_the_driver_that_fails_gives_all_of_it_back(cuda, library, call):
    tree = [made_on(cuda, cuda.stream(), 1.0, "cai3") for _ in range(3)]
    cuda.fail(call, nth=2)
    with pytest.raises(RuntimeError, match=rf"^x\[1\]: {call}: got ") as caught:
        convert(tree, "stand_in")
    assert (caught.value.call, caught.value.code) == (call, 2)
    del caught
    gc.collect()
    assert [x.exports for x in tree] == [0] * 3


WHERE = {
    r"x\[0\]": lambda x: [x],
    r'x\["a"\]': lambda x: {"a": x},
    r"x\[7\]\[1\]": lambda x: {7: (1, x)},
    r"x\.other": lambda x: Pair(1, x),
    r'x\.data\[0\]\["k"\]': lambda x: Frozen([{"k": x}]),
}


@pytest.mark.parametrize("where", WHERE)
def test_a_refusal_names_the_place(cuda, library, where):
    for copy in (None, True):
        x = torch_like(cuda.array([1.0], speaks=("dlpack", "cai2")), _grad=True)
        with pytest.raises(BufferError, match=rf"^{where}: requires_grad: got True; allowed: "):
            convert(WHERE[where](x), "stand_in", copy=copy)


@pytest.mark.parametrize("copy", [None, False])
def test_a_refusal_of_the_librarys_own_arrays_names_the_place(cuda, copy):
    views = [convert(cuda.array([1.0], device=device), "cai") for device in (0, 1)]
    said = r"^x\[1\]: stream: got the stream .+ of device 0"
    with pytest.raises(ValueError, match=said) as caught:
        convert(views, "cai", stream=cuda.stream(), copy=copy)
    assert not vars(caught.value)


RAISED = [
    (KeyError, ("k",)),
    (ValueError, ("data: got 3; allowed: 4",)),
    (OSError, (2, "gone")),
    (ImportError, ("no module",)),
]


@pytest.mark.parametrize("member", ["__dlpack__", "__dlpack_device__"])
@pytest.mark.parametrize(("kind", "before"), RAISED)
def test_a_producers_own_error_stays_and_has_the_place_as_a_note(
    cuda, library, kind, before, member
):
    raised = kind(*before)

    def fail(*_, **asked):
        raise raised

    members = {"__dlpack__": fail, "__dlpack_device__": cuda.array([1.0]).__dlpack_device__}
    torn, text = type("Torn", (), {**members, member: fail}), str(raised)
    for _ in range(2):
        with pytest.raises(kind) as caught:
            convert({"a": [torn()]}, "stand_in")
        assert caught.value is raised
        assert (raised.args, str(raised)) == (before, text)
        assert raised.__notes__ == ['at x["a"][0]']
    with pytest.raises(kind):
        adapt(lambda one: one, to="stand_in")(torn())
    assert (raised.args, raised.__notes__) == (before, ['at x["a"][0]', "at one"])


def test_an_array_with_a_dict_alone_is_where_that_says(cuda, library):
    """Whatever it answers for a protocol that it does not speak; its class may be of no module."""

    class Odd:
        __module__ = None

        def __init__(self):
            self.array = cuda.array([1.0], speaks="cai3")

        def __dlpack_device__(self):
            return (1, 0)

        @property
        def __cuda_array_interface__(self):
            return self.array.__cuda_array_interface__

    assert isinstance(convert(Odd(), "stand_in"), Array)
    assert isinstance(convert([Odd()], "stand_in")[0], Array)
    assert adapt(type, to="stand_in")(Odd()) is Array
