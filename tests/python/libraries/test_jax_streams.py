"""The stream that JAX computes on, which is not the one that it gives `__dlpack__`."""

from __future__ import annotations

import ctypes
import textwrap
from typing import Any

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


def ends(said: str) -> list[str]:
    """What two conversions to JAX say at their ends, where `said` is what it computes on."""
    return run(textwrap.dedent(JAX).replace("SAID", said)).split("the end\n")[1:]


@needs_the_driver_of_stubs
def test_the_producer_waits_for_the_stream_that_jax_computes_on() -> None:
    for told in ends("COMPUTE"):
        assert "consumer=0x50002000 producer=0x50000000 order=made" in told
        assert "made 1 0\n" in told
    assert told.endswith("asked [0]\n")


@needs_the_driver_of_stubs
def test_where_it_is_not_known_the_host_waits() -> None:
    for told in ends("None"):
        # The first wait of a process looks three times.
        assert "made 0 3\n" in told or "made 0 1\n" in told
    assert told.endswith("asked [0]\n")


HEAD = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p)]


class ApiVersion(ctypes.Structure):
    _fields_ = [*HEAD, ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class GetStream(ctypes.Structure):
    _fields_ = [*HEAD, ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


GET_STREAM = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(GetStream))
DESTROY_ERROR = ctypes.CFUNCTYPE(None, ctypes.POINTER(GetStream))


class Api(ctypes.Structure):
    _fields_ = [
        *HEAD,
        ("version", ApiVersion),
        ("internal", ctypes.c_void_p),
        ("create_error", ctypes.c_void_p),
        ("error_message", ctypes.c_void_p),
        ("destroy_error", DESTROY_ERROR),
        ("register", ctypes.c_void_p),
        ("get_stream", GET_STREAM),
        ("more", ctypes.c_void_p * 14),
    ]


class Metadata(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("version", ApiVersion), ("traits", ctypes.c_uint32)]


class Extension(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(Metadata)),
    ]


class CallFrame(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(Extension)),
        ("api", ctypes.POINTER(Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
    ]


EXECUTE, CONTEXT, STREAM = 3, 0x1234, 0x5678


def called(stage: int = EXECUTE, extension: Any = None, **of_api: Any) -> tuple[int, list[int]]:
    """What a call, as XLA makes it, leaves behind: the stream, and what errors were destroyed."""
    destroyed: list[int] = []

    def get_stream(asked: Any) -> int:
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


def test_what_xla_calls_notes_the_stream_once() -> None:
    assert called() == (STREAM, [])
    assert _core._xla_said() == 0


@pytest.mark.parametrize("other", [{"stage": 0}, {"major": 1}, {"size": 80}])
def test_of_another_stage_or_interface_it_notes_none(other: dict[str, int]) -> None:
    assert called(**other) == (0, [])


def test_an_error_is_destroyed() -> None:
    assert called(error=77) == (0, [77])


def test_at_its_registration_it_has_the_version_of_whoever_asks() -> None:
    metadata = Metadata(ctypes.sizeof(Metadata), traits=9)
    extension = Extension(ctypes.sizeof(Extension), 1, None, ctypes.pointer(metadata))
    assert called(extension=ctypes.pointer(extension)) == (0, [])
    assert (metadata.version.major, metadata.version.minor, metadata.traits) == (0, 3, 0)


def test_jax_itself_makes_the_call_and_what_is_traced_just_now_has_none_of_it() -> None:
    jax = pytest.importorskip("jax", exc_type=ImportError)
    (device, *_) = jax.devices("cpu")

    def traced(x: Any) -> Any:
        # On the CPU there is no stream to tell.
        assert _jax._told(device, "cpu") is None
        return x + 1

    assert _jax._told(device, "cpu") is None
    assert "ffi" not in str(jax.make_jaxpr(traced)(1.0))
