"""NumPy: its arrays are taken by the simulated device, and what it is given is its own."""

import ml_dtypes
import numpy as np
import pytest
from children import assert_quiet
from contract import assert_refused, each
from moving import host_waits

from cai_bridge import convert, to_cai, to_dlpack

SOURCES = {
    "of floats": np.arange(6.0).reshape(2, 3),
    "of ints, big-endian, reversed": np.arange(6, dtype=">i4").reshape(2, 3)[::-1, ::2],
    "of bools": np.array([True, False]),
    "of complex": np.array([[1 + 2j]], dtype="complex64"),
    "of bfloat16": np.array([1.5, -2.0], dtype=ml_dtypes.bfloat16),
    "without a dimension": np.array(5, dtype="uint8"),
    "without elements": np.zeros((2, 0, 3)),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_an_array_of_numpys_goes_to_the_device_and_back(source, cuda):
    x = cuda.array(source)
    assert (to_cai(x).dtype.name, x.shape) == (source.dtype.name, source.shape)
    made = convert(x, "numpy")
    assert made.tolist() == source.tolist() == x.tolist()


def test_the_bits_of_small_floats_are_kept(cuda):
    source = np.array([1.5, -2.0], dtype=ml_dtypes.float8_e5m2)
    made = convert(cuda.array(source), "numpy")
    assert (made.dtype, made.tobytes()) == (source.dtype, source.tobytes())


def test_what_is_said_of_an_array_of_numpys_goes_first(cuda):
    x = cuda.array(np.arange(4), dtype="float32", shape=(2, 2))
    assert (to_cai(x).typestr, x.tolist()) == ("<f4", [[0.0, 1.0], [2.0, 3.0]])


def test_streams_fill_from_arrays_of_numpys(cuda):
    x, mine = cuda.array(shape=(2, 2)), cuda.stream()
    for value in (np.ones((2, 2)), np.array(7)):
        mine.fill(x, value)
        cuda.synchronize()
        assert (x.tolist() == np.broadcast_to(value, (2, 2))).all()
    with pytest.raises(ValueError, match=r"data: got the shape \(3, 2\); allowed: \(2, 2\)"):
        mine.fill(x, np.ones((3, 2)))


OF_THE_HOST = pytest.mark.parametrize("memory", ["pinned", "managed"])


@OF_THE_HOST
@pytest.mark.parametrize("speaks", ["cai3", "exchange", "dlpack"])
@pytest.mark.parametrize("moves", [False, True])
def test_memory_that_the_cpu_reaches_is_ready_when_numpy_has_it(memory, speaks, moves, cuda):
    mine, then = cuda.stream(), cuda.stream()
    x = cuda.array([0.0] * 4, memory=memory, speaks=speaks, stream=mine)
    with cuda.current_stream(mine):
        mine.fill(x, 7.0)
        view = to_dlpack(x)
    if moves and speaks == "cai3":
        then.wait(mine.record())
        then.fill(x, 8.0)
    seen = np.from_dlpack(view)
    assert seen.ctypes.data == x.ptr
    assert seen.tolist() == [8.0 if moves and speaks == "cai3" else 7.0] * 4
    del view, seen


@OF_THE_HOST
def test_the_host_waits_for_nothing_where_nothing_is_pending(memory, cuda):
    other = cuda.array([0.0], memory=memory)
    cuda.stream().fill(other, 1.0)
    view = to_dlpack(cuda.array([5.0] * 4, memory=memory, speaks="cai3"))
    assert view.stream is None
    assert np.from_dlpack(view).tolist() == [5.0] * 4
    assert host_waits(cuda) == 0
    cuda.synchronize()


@pytest.mark.parametrize("stream", [1, 2, -1])
@OF_THE_HOST
def test_nor_for_a_consumer_that_names_its_stream(memory, stream, cuda):
    mine = cuda.stream()
    x = cuda.array([0.0] * 4, memory=memory, speaks="cai3", stream=mine)
    mine.fill(x, 7.0)
    to_dlpack(x).__dlpack__(stream=stream)
    to_dlpack(x).__dlpack__(dl_device=(2, 0))
    assert host_waits(cuda) == 0
    cuda.synchronize()


@OF_THE_HOST
@each("refusals", "object", kind="CaptureHostReader")
def test_nor_for_work_that_is_captured(row, memory, cuda):
    mine = cuda.stream("captured", blocking=False)
    x = cuda.array([0.0] * 4, memory=memory, speaks="cai3", stream=mine)
    view = to_dlpack(x)
    with cuda.capture(mine) as graph:
        mine.fill(x, 7.0)
        assert_refused(row, np.from_dlpack, view)
        view.__dlpack__(stream=mine)  # as the message says
    graph.launch(mine)
    assert np.from_dlpack(view).tolist() == [7.0] * 4


@pytest.mark.parametrize("kind", ["U1", "O", "M8[s]", "i4,f4"])
def test_element_types_that_no_array_on_a_gpu_has_are_refused(kind, cuda):
    with pytest.raises(ValueError, match=r"dtype: got '.*'; allowed: bool, int8"):
        cuda.array(np.zeros(2, dtype=kind))


def test_a_copy_for_numpy_is_an_array_that_owns_its_memory(cuda):
    x = cuda.array([1.0, 2.0])
    made = convert(x, "numpy")
    assert made.base is None
    assert made.flags.owndata
    made[0] = 5.0
    assert x.tolist() == [1.0, 2.0]


def test_an_element_type_of_another_size_is_refused(cuda, monkeypatch):
    x = cuda.array([1.0, 2.0], dtype="bfloat16")
    monkeypatch.setattr(ml_dtypes, "bfloat16", np.uint8)
    with pytest.raises(TypeError, match="dtype: got a bfloat16 of 1 bytes from ml_dtypes"):
        convert(x, "numpy")


def test_a_copy_for_numpy_that_fails_is_lost_with_its_array(cuda):
    x = cuda.array([1.0, 2.0])
    cuda.fail("cuStreamSynchronize", 1, "CUDA_ERROR_LAUNCH_FAILED")
    with pytest.raises(RuntimeError, match="cuStreamSynchronize: got CUDA_ERROR_LAUNCH_FAILED"):
        convert(x, "numpy")
    assert convert(x, "numpy").tolist() == [1.0, 2.0]


DEVICE = """
    from cai_bridge import convert, to_cai
    from cai_bridge.testing import simulated_cuda
    def refused(ask):
        try:
            ask()
        except ImportError as error:
            return str(error)
    cuda = simulated_cuda().__enter__()
    x = cuda.array([1.0, 2.0])
"""
MISSING = """
    assert (x.tolist(), sys.modules["numpy"]) == ([1.0, 2.0], None)
    missing = "import of numpy halted; None in sys.modules"
    assert [refused(lambda: to_cai(x).dtype), refused(lambda: convert(x, "numpy"))] == [missing] * 2
"""
OTHER_ABI = """
    said = "numpy: got ABI version 0x3000000; allowed: at most 0x2000000"
    assert refused(lambda: to_cai(x).dtype) == said
"""


def test_where_numpy_is_missing_the_error_says_so_and_nothing_else_needs_it():
    assert_quiet('import sys\nsys.modules["numpy"] = None\n', DEVICE, MISSING, prelude="")


def test_a_numpy_of_another_abi_is_refused():
    newer = """
    import numpy._core.multiarray
    numpy._core.multiarray._get_ndarray_c_version = lambda: 0x3000000
    """
    assert_quiet(newer, DEVICE, OTHER_ABI, prelude="")
