"""What known libraries do that their protocols do not say, each row of the bridge's table."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest

from cai_bridge import convert, from_cai, to_cai

from . import libraries, streams
from .streams import WORDS, handle_of


def test_cupys_dict_names_the_current_stream_which_its_arrays_do_not_keep(cupy):
    array = cupy.ones(4, dtype="float32")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        assert array.__cuda_array_interface__["stream"] == handle_of(stream)
        view = from_cai(array)
    gone = weakref.ref(stream)
    del stream
    gc.collect()
    assert gone() is not None, "the view keeps it"
    view.release()
    gc.collect()
    assert gone() is None


def test_cupys_current_stream_is_to_be_had_without_python(cupy):
    from cupy_backends.cuda import stream as backend

    capsule = backend.__pyx_capi__["get_stream_ptr"]
    assert '"intptr_t (int)"' in repr(capsule)


@pytest.mark.parametrize("named", [True, False])
def test_numbas_default_stream_is_named_0_or_not_at_all(driver, named):
    cuda = pytest.importorskip("numba.cuda")
    default = cuda.default_stream()
    arguments = {"stream": default} if named else {}
    array = cuda.device_array(WORDS, "float32", **arguments)
    assert array.__cuda_array_interface__["stream"] == (0 if named else None)
    view = from_cai(array)
    assert view.stream == 1
    value = next(streams.fresh_values())
    streams.numba_writes_late(array, value, default)
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True):
        seen = cupy.from_dlpack(from_cai(array)).get()
    assert (seen == value).all()


def test_numbas_arrays_have_the_object_of_their_stream(driver):
    cuda = pytest.importorskip("numba.cuda")
    stream = cuda.stream()
    array = cuda.device_array(4, "float32", stream=stream)
    assert handle_of(array.stream) == array.__cuda_array_interface__["stream"] == handle_of(stream)
    view, gone = from_cai(array), weakref.ref(stream)
    del array, stream
    gc.collect()
    assert gone() is not None
    view.release()


def test_pytorchs_dict_says_nothing_of_its_streams(torch):
    x = torch.ones(4, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        interface = x.__cuda_array_interface__
        assert interface["version"] == 2
        assert "stream" not in interface
        assert from_cai(x).stream == side.cuda_stream


def test_pytorchs_pools_are_a_round_of_streams_that_never_die(torch):
    x = torch.ones(4, device="cuda")
    least, greatest = torch.cuda.Stream.priority_range()
    for priority in range(greatest, least + 1):
        all_of_them = [torch.cuda.Stream(priority=priority).cuda_stream for _ in range(64)]
        assert all_of_them[:32] == all_of_them[32:]
        assert len(set(all_of_them)) == 32
        # To ask whether a handle is one of them does not take the library's turn.
        view = to_cai(x, stream=all_of_them[7])
        assert torch.cuda.Stream(priority=priority).cuda_stream == all_of_them[0]
        del view


def test_jax_asks_for_streams_that_it_keeps(cupy):
    jax = libraries.gpu_jax()
    device = jax.devices("gpu")[0]
    handles = [device.get_stream_for_external_ready_events() for _ in range(8)]
    assert handles[:4] == handles[4:]
    view, taken = from_cai(cupy.ones(4, dtype="float32")), []
    taken.append(jax.dlpack.from_dlpack(view))
    taken.clear()
    # Who asks leaves JAX's turn where it was.
    assert device.get_stream_for_external_ready_events() in handles


def test_stream_objects_of_cupy_and_numba_have_no_way_to_be_closed(cupy):
    cuda = pytest.importorskip("numba.cuda")
    for stream in (cupy.cuda.Stream(non_blocking=True), cuda.stream()):
        assert not any(hasattr(stream, name) for name in ("close", "destroy"))


def test_a_broadcast_array_of_numba_is_no_contiguous_one_whatever_its_dict_says(cupy):
    cuda = pytest.importorskip("numba.cuda")
    wide = cupy.broadcast_to(cupy.arange(3, dtype="float32"), (2, 3))
    array = cuda.as_cuda_array(wide)
    assert (array.strides, array.__cuda_array_interface__["strides"]) == ((0, 4), None)
    view = to_cai(array)
    assert view.strides == (0, 4)
    assert cupy.asarray(view).tolist() == [[0.0, 1.0, 2.0]] * 2


def test_the_default_stream_of_numba_cuda_mlir_is_waited_for(driver, cupy):
    pytest.importorskip("numba_cuda_mlir")
    from numba_cuda_mlir import numba_cuda as cuda

    array, mine = cupy.zeros(WORDS, dtype="float32"), cupy.cuda.Stream(non_blocking=True)
    for value in itertools.islice(streams.fresh_values(), 20):
        driver.synchronize()
        streams.cupy_writes_late(array, value, cupy.cuda.Stream.null)
        with mine:
            its = cuda.as_cuda_array(array, sync=False)
            its.stream = 0
            seen = convert(its, "cupy", stream=mine).copy()
            assert (cupy.asnumpy(seen) == value).all()
    driver.synchronize()
    wide = cuda.as_cuda_array(cupy.broadcast_to(cupy.arange(3, dtype="float32"), (2, 3)))
    assert wide.__cuda_array_interface__["strides"] is None
    assert from_cai(wide).strides == (0, 4)


def test_strided_memory_is_refused_for_jax_with_the_way_out(cupy):
    libraries.gpu_jax()
    x = cupy.arange(12, dtype="float32").reshape(3, 4)
    for strided in (x[:, ::2], cupy.broadcast_to(x[0], (2, 4))):
        with pytest.raises(BufferError, match=r"^strides: got .*; allowed: .*copy=True"):
            convert(strided, "jax")
        assert convert(strided, "jax", copy=True).tolist() == strided.tolist()
    assert convert(x.T, "jax").tolist() == x.T.tolist()


def test_torchs_float4_goes_to_tvm_ffi_as_it_is(driver):
    """The CUDA Array Interface, which has no word for it, takes no part."""
    torch, tvm_ffi = pytest.importorskip("torch"), pytest.importorskip("tvm_ffi")
    float4 = getattr(torch, "float4_e2m1fn_x2", None)
    if float4 is None:
        pytest.skip("this torch has no float4")
    x = torch.arange(16, dtype=torch.uint8, device="cuda").view(float4)
    made = convert(x, "tvm_ffi")
    assert isinstance(made, tvm_ffi.Tensor)
    assert (made.data_ptr(), tuple(made.shape)) == (x.data_ptr(), tuple(x.shape))
    assert "float4_e2m1fn" in str(made.dtype)
    again = convert(made, "torch")
    assert again.dtype == float4
    assert torch.equal(again.view(torch.uint8), x.view(torch.uint8))
    with pytest.raises(BufferError, match="dtype: got DLDataType"):
        to_cai(x)
