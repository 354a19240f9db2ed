"""PyTorch before 2.10, which has no exchange API, over a driver of stubs."""

import textwrap

import pytest
from test_cuda_door import ROOT, run
from test_cuda_door import pytestmark as needs_the_driver_of_stubs

pytestmark = needs_the_driver_of_stubs

TORCH = f"""
    sys.path.insert(0, {str(ROOT / "tests" / "python")!r})
    import capsules
    from cai_bridge import convert

    class Tensor:
        __module__ = "torch"

        def __init__(self, capsule):
            self.taken = capsules.take(capsule)

    class Stream_:
        __module__, made = "torch.cuda.streams", 0

        @staticmethod
        def priority_range():
            return (0, 0)

        def __init__(self, device, priority=0):
            Stream_.made += 1
            self.cuda_stream = 0x6000_0000 + 16 * (Stream_.made % 4)

    current = Stream_(0)
    torch = module("torch", Tensor=Tensor)
    torch._C = module("torch._C", _cuda_getCurrentRawStream=lambda _: current.cuda_stream)
    torch.cuda = module("torch.cuda", current_stream=lambda _: current, Stream=Stream_)
    torch.cuda.is_initialized = lambda: True
    torch.utils = module("torch.utils")
    torch.utils.dlpack = module("torch.utils.dlpack", from_dlpack=Tensor)

    def array():
        return from_cai(Array(), stream=Stream(MINE))

    def orders():
        assert calls("cuEventRecord") == calls("cuStreamWaitEvent")
        assert calls("cuModuleUnload") == 0
        return calls("cuStreamWaitEvent")
"""


READ = """
    view = to_cai(array())
    before = orders()
    view.__cuda_array_interface__
    read = orders()
    view.release()
    # torch ignores the stream that the dict names; another reader may work on a default stream.
    assert (read - before, orders() - read) == EXPECTED
"""
# The view that the capsule is of ends with the call, and gives its own part back then.
CAPSULES = """
    said = {}, {"stream": -1}, {"stream": Stream(MINE)}
    for how, expected in zip(said, ((2, 1), (0, 0), (0, 0))):
        x = array()
        before = orders()
        tensor = convert(x, "torch", **how)
        assert type(tensor) is Tensor and convert(tensor, "torch") is tensor
        made = orders()
        tensor.taken.delete()
        assert (made - before, orders() - made) == expected, how
"""
REFUSED = """
    changes = {"readonly": {"data": (0x7000_0000, True)}, "strides": {"strides": (-12, 4)}}
    for named, change in changes.items():
        given = Array()
        given.__cuda_array_interface__.update(change)
        assert refused(lambda: convert(given, "torch")).startswith(f"BufferError: {named}:")
"""
PRODUCED = """
    class Produced(Tensor):
        __module__ = "torch"
        requires_grad, asked = False, []
        is_neg = is_conj = lambda self: False
        __cuda_array_interface__ = dict(
            shape=(4,), typestr="<f4", data=(0x7000_0000, False), version=2, strides=None
        )

        def __init__(self):
            pass

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, *, stream=None):
            self.asked.append(stream)
            return capsules.HandMade(0x7000_0000).capsule()

    class Derived(Produced):
        __module__ = "mine"

        def __dlpack__(self, *, stream=None):
            return super().__dlpack__(stream=stream)

    class Seen(logging.Handler):
        def emit(self, record):
            if record.order == "made":
                seen.append((record.door, WHO[record.producer], WHO[record.consumer]))

    seen, WHO = [], {1: "legacy", OTHER: "other", current.cuda_stream: "torchs"}
    tensor, derived, logger = Produced(), Derived(), logging.getLogger("cai_bridge")
    logger.addHandler(Seen())
    logger.setLevel(logging.DEBUG)
"""
# Another stream of torch's would go on with the memory while the consumer still reads.
OWN = (
    PRODUCED
    + """
    interface = dict(tensor.__cuda_array_interface__)
    other = Stream(OTHER)
    for door, call in (
        ("to_cai", lambda: to_cai(tensor, stream=other)),
        ("to_cai", lambda: to_cai(derived, stream=other)),
        ("__dlpack__", lambda: from_cai(tensor).__dlpack__(stream=other)),
        ("__dlpack__", lambda: from_cai(interface, owner=derived).__dlpack__(stream=other)),
    ):
        taken = [call()]
        assert seen == [(door, "torchs", "other")]
        taken.clear()
        gc.collect()
        assert seen[1:] == [("release", "torchs", "other")]
        seen.clear()
    assert set(tensor.asked) == {-1}
"""
)
NAMED = (
    PRODUCED
    + """
    to_cai(tensor, stream=-1).release()
    assert seen == []
    named = [to_cai(x).__cuda_array_interface__["stream"] for x in (tensor, from_cai(tensor))]
    assert [WHO[stream] for stream in named] == ["torchs"] * 2
    assert set(tensor.asked) == {-1}
"""
)
RULES = {
    "its current stream waits for an array whose dict is read, and is waited for": (
        "    EXPECTED = 1, 2" + READ
    ),
    "one without CUDA has no stream": (
        "    EXPECTED = 0, 1\n    del torch._C._cuda_getCurrentRawStream" + READ
    ),
    "a tensor is made of a capsule, and ordered both ways": CAPSULES,
    "what torch has no tensor for is refused": REFUSED,
    "its own tensors are ordered after and before its current stream": OWN,
    "the dict of a view of its tensor names its current stream, and -1 orders nothing": NAMED,
}


@pytest.mark.parametrize("rule", RULES)
def test_an_old_torch_keeps_the_rule_that(rule):
    run(textwrap.dedent(TORCH) + textwrap.dedent(RULES[rule]))
