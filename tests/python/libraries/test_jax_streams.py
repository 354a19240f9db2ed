"""The stream that JAX computes on, which is not the one that it gives `__dlpack__`."""

import ctypes
import textwrap

import pytest
from test_cuda_door import pytestmark as needs_the_driver_of_stubs
from test_cuda_door import run

from cai_bridge import _core
from cai_bridge._libraries import _jax

JAX = """
    from cai_bridge._libraries import _jax

    READY, COMPUTE, turn = 0x5000_1000, 0x5000_2000, [0]

    class Device:
        local_hardware_id = 0
        def get_stream_for_external_ready_events(self):
            turn[0] += 1
            return READY + 16 * (turn[0] % 4)

    bridge = types.SimpleNamespace(backends_are_initialized=lambda: True)
    module(
        "jax",
        _src=types.SimpleNamespace(xla_bridge=bridge),
        local_devices=lambda process_index=None, backend=None: [Device()],
    )
    logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(message)s")
    asked = []

    def work_stream(device):
        asked.append(device)
        return SAID

    _jax.work_stream = work_stream
    for _ in range(2):
        view = from_cai(Array(), stream=Stream(MINE))
        capsule = view.__dlpack__(stream=Device().get_stream_for_external_ready_events())
        view.release(-1)
        print("the end")
        waits, hosts = calls("cuStreamWaitEvent"), calls("cuModuleUnload")
        del capsule
        print("made", calls("cuStreamWaitEvent") - waits, calls("cuModuleUnload") - hosts)
    print("asked", asked)
"""


@needs_the_driver_of_stubs
@pytest.mark.parametrize("said", ["COMPUTE", "None"])
def test_the_producer_waits_for_the_stream_that_jax_computes_on_or_the_host_does(said):
    told = run(textwrap.dedent(JAX).replace("SAID", said)).split("the end\n")[1:]
    for end in told:
        if said == "COMPUTE":
            assert "consumer=0x50002000 producer=0x50000000 order=made" in end
            assert "made 1 0\n" in end
        else:
            # The first wait of a process looks three times.
            assert "made 0 3\n" in end or "made 0 1\n" in end
    assert told[-1].endswith("asked [0]\n")


P, INT, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
POINTER = ctypes.POINTER


def structure(**members):
    """XLA's structures all begin with their size."""
    return type("Made", (ctypes.Structure,), {"_fields_": [("size", SIZE), *members.items()]})


ApiVersion = structure(extension=P, major=INT, minor=INT)
GetStream = structure(extension=P, context=P, stream=P)
GET_STREAM = ctypes.CFUNCTYPE(P, POINTER(GetStream))
DESTROY_ERROR = ctypes.CFUNCTYPE(None, POINTER(GetStream))
Api = structure(
    extension=P,
    version=ApiVersion,
    internal=P,
    create_error=P,
    error_message=P,
    destroy_error=DESTROY_ERROR,
    register=P,
    get_stream=GET_STREAM,
    more=P * 14,
)
Metadata = structure(version=ApiVersion, traits=ctypes.c_uint32)
Extension = structure(kind=INT, next=P, metadata=POINTER(Metadata))
CallFrame = structure(extension=POINTER(Extension), api=POINTER(Api), context=P, stage=INT)
EXECUTE, CONTEXT, STREAM = 3, 0x1234, 0x5678


def called(stage=EXECUTE, extension=None, **of_api):
    """What a call, as XLA makes it, leaves behind: the stream, and what errors were destroyed."""
    destroyed = []

    def get_stream(asked):
        assert asked.contents.context == CONTEXT
        asked.contents.stream = STREAM
        return int(of_api.get("error", 0))

    api = Api(
        size=of_api.get("size", ctypes.sizeof(Api)),
        version=ApiVersion(ctypes.sizeof(ApiVersion), None, of_api.get("major", 0), 3),
        destroy_error=DESTROY_ERROR(lambda failed: destroyed.append(failed.contents.context)),
        get_stream=GET_STREAM(get_stream),
    )
    frame = CallFrame(ctypes.sizeof(CallFrame), extension, ctypes.pointer(api), CONTEXT, stage)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = pointer_of(_core._xla_handler(), b"xla")
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CallFrame))(address)
    _core._xla_said()
    assert function(ctypes.pointer(frame)) is None
    return _core._xla_said(), destroyed


# The stream and the errors destroyed that are left behind by a call with these members.
CALLS = {
    "of this stage and interface": ({}, (STREAM, [])),
    "of another stage": ({"stage": 0}, (0, [])),
    "of another interface": ({"major": 1}, (0, [])),
    "of a smaller interface": ({"size": 80}, (0, [])),
    "that fails": ({"error": 77}, (0, [77])),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_xlas_notes_the_stream_once(call):
    members, left = CALLS[call]
    assert called(**members) == left
    assert _core._xla_said() == 0


def test_at_its_registration_it_has_the_version_of_whoever_asks():
    metadata = Metadata(ctypes.sizeof(Metadata), traits=9)
    extension = Extension(ctypes.sizeof(Extension), 1, None, ctypes.pointer(metadata))
    assert called(extension=ctypes.pointer(extension)) == (0, [])
    assert (metadata.version.major, metadata.version.minor, metadata.traits) == (0, 3, 0)


def test_jax_itself_makes_the_call_and_what_is_traced_just_now_has_none_of_it():
    jax = pytest.importorskip("jax", exc_type=ImportError)
    (device, *_) = jax.devices("cpu")

    def traced(x):
        # On the CPU there is no stream to tell.
        assert _jax._told(device, "cpu") is None
        return x + 1

    assert _jax._told(device, "cpu") is None
    assert "ffi" not in str(jax.make_jaxpr(traced)(1.0))
