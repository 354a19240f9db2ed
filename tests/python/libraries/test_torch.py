"""PyTorch before 2.10, which has no exchange API, over a driver of stubs."""

import textwrap

import pytest
from test_cuda_door import ROOT, run
from test_cuda_door import pytestmark as needs_the_driver_of_stubs

pytestmark = needs_the_driver_of_stubs

TORCH = f"""
    sys.path.insert(0, {str(ROOT / "tests" / "python")!r})
    import types
    import capsules
    from cai_bridge import convert

    def module(name, **members):
        made = types.ModuleType(name)
        made.__dict__.update(members)
        sys.modules[name] = made
        return made

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


def torch(body):
    """Run `body` beside a stand-in for an old torch, and give the words that it printed."""
    return run(textwrap.dedent(TORCH) + textwrap.dedent(body)).split()


READ = """
    view = to_cai(array())
    before = orders()
    view.__cuda_array_interface__
    read = orders()
    view.release()
    print(read - before, orders() - read)
"""


def test_its_current_stream_waits_for_an_array_whose_dict_is_read_and_is_waited_for():
    # torch ignores the stream that the dict names; another reader may work on a default stream.
    assert torch(READ) == ["1", "2"]
    # One without CUDA has no stream.
    assert torch("    del torch._C._cuda_getCurrentRawStream" + READ) == ["0", "1"]


@pytest.mark.parametrize(
    # The view that the capsule is of ends with the call, and gives its own part back then.
    ("said", "expected"),
    [("", ["2", "1"]), ("stream=-1", ["0", "0"]), ("stream=Stream(MINE)", ["0", "0"])],
)
def test_a_tensor_is_made_of_a_capsule_and_ordered_both_ways(said, expected):
    told = torch(
        f"""
        x = array()
        before = orders()
        tensor = convert(x, "torch", {said})
        assert type(tensor) is Tensor and convert(tensor, "torch") is tensor
        made = orders()
        tensor.taken.delete()
        print(made - before, orders() - made)
        """
    )
    assert told == expected


@pytest.mark.parametrize(
    ("change", "named"), [("data=(0x7000_0000, True)", "readonly"), ("strides=(-12, 4)", "strides")]
)
def test_what_torch_has_no_tensor_for_is_refused(change, named):
    told = torch(
        f"""
        given = Array()
        given.__cuda_array_interface__.update({change})
        print(refused(lambda: convert(given, "torch")))
        """
    )
    assert told[:2] == ["BufferError:", f"{named}:"]


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
                print(record.door, *(WHO[stream] for stream in (record.producer, record.consumer)))

    WHO = {1: "legacy", OTHER: "other", current.cuda_stream: "torchs"}
    tensor, derived, logger = Produced(), Derived(), logging.getLogger("cai_bridge")
    logger.addHandler(Seen())
    logger.setLevel(logging.DEBUG)
"""


@pytest.mark.parametrize(
    "call",
    [
        "to_cai(tensor, stream=Stream(OTHER))",
        "to_cai(derived, stream=Stream(OTHER))",
        "from_cai(tensor).__dlpack__(stream=Stream(OTHER))",
        "from_cai(interface, owner=derived).__dlpack__(stream=Stream(OTHER))",
    ],
)
def test_its_own_tensors_are_ordered_after_and_before_its_current_stream(call):
    """Another stream of torch's would go on with the memory while the consumer still reads."""
    told = torch(
        PRODUCED
        + f"""
    interface = dict(tensor.__cuda_array_interface__)
    taken = {call}
    print("|")
    del taken
    gc.collect()
    assert set(tensor.asked) <= {{-1}}
    """
    )
    door = "to_cai" if call.startswith("to_cai") else "__dlpack__"
    assert " ".join(told) == f"{door} torchs other | release torchs other"


def test_the_dict_of_a_view_of_its_tensor_names_its_current_stream():
    told = torch(
        PRODUCED
        + """
    to_cai(tensor, stream=-1).release()
    print("|")
    named = [to_cai(x).__cuda_array_interface__["stream"] for x in (tensor, from_cai(tensor))]
    print(*map(WHO.get, named))
    assert set(tensor.asked) == {-1}
    """
    )
    assert (told[0], told[-2:]) == ("|", ["torchs", "torchs"]), "-1 orders nothing"
