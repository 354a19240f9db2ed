"""`examples/rust_extension` on the simulated device, which it borrows from the package.

Skipped where it is not built: ``make extensions``.
"""

import gc
import threading

import pytest
from children import DEVICE, assert_quiet

from cai_bridge import DriverError, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

rust = pytest.importorskip(
    "rust_extension", reason="examples/rust_extension is not built: make extensions"
)

SPEAKS = ("exchange", "dlpack", "dlpack-legacy", "cai3")
CONSUMERS = ("cai-waits", "cai-enqueues", "dlpack", "dlpack-exchange")


def read(cuda, out):
    """What another library reads on a stream of its own."""
    mine = cuda.stream("mine")
    seen = mine.read(to_cai(out, stream=mine))
    mine.synchronize()
    return seen.value


@pytest.mark.parametrize("second", SPEAKS)
@pytest.mark.parametrize("first", SPEAKS)
def test_a_kernel_reads_what_both_producers_had_queued(cuda, first, second):
    stream = cuda.stream("the library's")
    with cuda.current_stream(stream):
        x = cuda.array([1.0, 2.0], speaks=first, stream=stream, name="x")
        y = cuda.array([10.0, 20.0], speaks=second, stream=stream, name="y")
        out = rust.saxpy(3.0, x, y)
    assert read(cuda, out) == [13.0, 26.0]


@pytest.mark.parametrize(
    "kind", [*CONSUMERS, "dlpack-legacy-capsule", "dlpack-none", "dlpack-borrowed"]
)
def test_every_consumer_takes_what_it_returns_and_waits_for_the_kernel(cuda, kind):
    x = cuda.array([1.0, 2.0], speaks="exchange")
    out = rust.saxpy(2.0, x, x)
    mine = cuda.stream("mine")
    with cuda.current_stream(mine):
        consumer = cuda.consumer(kind, mine)
        seen = consumer.read(out)
        mine.synchronize()
        cuda.synchronize()
        assert seen.value == [3.0, 6.0]
        seen.release()


@pytest.mark.parametrize("speaks", SPEAKS)
def test_memory_that_the_producer_uses_again_is_not_read_by_the_kernel_any_more(cuda, speaks):
    stream = cuda.stream("the library's")
    outs = []
    with cuda.current_stream(stream):
        for i in range(5):
            x = cuda.array([float(i)] * 4, speaks=speaks, stream=stream, memory="pool")
            outs.append(rust.saxpy(1.0, x, x))
            del x  # its block is the next round's
            gc.collect()
    assert [read(cuda, out) for out in outs] == [[2.0 * i] * 4 for i in range(5)]


@pytest.mark.parametrize("kind", CONSUMERS)
def test_results_that_are_dropped_while_they_are_read_are_freed_once_and_in_order(cuda, kind):
    x = cuda.array([1.0, 2.0, 3.0], speaks="dlpack")
    mine = cuda.stream("mine")
    with cuda.current_stream(mine):
        seen = []
        for _ in range(20):
            out = rust.saxpy(1.0, x, x)
            seen.append(cuda.consumer(kind, mine).read(out))
            del out
            seen[-1].release()
        cuda.synchronize()
        assert [one.value for one in seen] == [[2.0, 4.0, 6.0]] * 20


def test_chains_of_kernels_need_no_wait_of_the_host(cuda):
    x = first = cuda.array([1.0, 2.0], speaks="exchange")
    for _ in range(8):
        x = rust.saxpy(1.0, x, x)
    assert x is not first
    assert cuda.pending >= 8
    assert read(cuda, to_dlpack(x)) == [256.0, 512.0]


@pytest.mark.parametrize("strides", ["C", "F"])
def test_blur_takes_strides(cuda, strides):
    image = cuda.array([[9.0, 0.0], [0.0, 0.0]], speaks="cai3", strides=strides)
    assert read(cuda, rust.blur(image)) == [[4.0, 2.0], [2.0, 1.0]]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"dtype": "float64"}, TypeError, "got float64 for a function that takes float32; allow"),
        ({"shape": (2, 2), "strides": "F"}, BufferError, "strides: got"),
        ({"shape": 3}, ValueError, r"\[3\] and \[2, 2\]"),
        ({"device": 1}, ValueError, r"stream: got .* for an array on device "),
    ],
)
def test_a_refusal_is_the_right_exception(cuda, wrong, error, message):
    x = cuda.array(fill=1.0, **{"shape": (2, 2), "speaks": "dlpack", **wrong})
    y = cuda.array(fill=1.0, shape=(2, 2), speaks="dlpack")
    with pytest.raises(error, match=message):
        rust.saxpy(1.0, x, y)


@pytest.mark.parametrize("nothing", [None, 3, "x", object()])
def test_what_speaks_neither_protocol_is_a_type_error(cuda, nothing):
    with pytest.raises(TypeError, match="object"):
        rust.blur(nothing)


def test_a_failure_of_the_driver_is_the_packages_exception_and_the_next_call_works(cuda):
    x = cuda.array([1.0, 2.0], speaks="exchange")
    cuda.fail("cuStreamWaitEvent", error="CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(DriverError, match="cuStreamWaitEvent") as raised:
        rust.saxpy(1.0, x, x)
    assert raised.value.code == 2
    assert rust.saxpy(1.0, x, x).shape == (2,)


def test_each_simulated_device_is_borrowed_while_it_is_in_place():
    for value in (1.0, 2.0):
        with simulated_cuda() as cuda:
            x = cuda.array([value], speaks="exchange")
            assert read(cuda, rust.saxpy(1.0, x, x)) == [2 * value]


def test_arrays_of_other_threads_are_taken(cuda):
    x = cuda.array([1.0, 2.0], speaks="dlpack")
    outs = []
    threads = [
        threading.Thread(target=lambda: outs.append(rust.saxpy(1.0, x, x))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [read(cuda, out) for out in outs] == [[2.0, 4.0]] * 4


@pytest.mark.unchecked
def test_the_kernels_of_the_extension_are_checked_as_all_other_work_is(cuda):
    x = cuda.array([1.0, 2.0], speaks="cai3")
    writer = cuda.stream("writer")
    writer.launch(writes=[to_cai(x)], name="write")  # the array does not know of it
    rust.saxpy(1.0, x, x)
    (report,) = cuda.reports
    assert "'write'" in str(report)
    assert "'saxpy'" in str(report)


def test_an_empty_array_needs_no_memory(cuda):
    x = cuda.array(shape=0, speaks="dlpack", fill=0.0)
    out = rust.saxpy(1.0, x, x)
    assert (out.shape, out.ptr) == ((0,), 0)


WHILE_CALLED = """
    import time
    class Slow:
        @property
        def __cuda_array_interface__(self):
            time.sleep(0.002)
            return x.__cuda_array_interface__
    def work():
        while True:
            rust_extension.saxpy(2.0, Slow(), Slow())
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)
"""
WITH_RESULTS = """
    kept = [rust_extension.saxpy(1.0, x, x) for _ in range(3)]
    capsule = kept[0].__dlpack__(stream=1)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@pytest.mark.parametrize("program", [*[WHILE_CALLED] * 3, WITH_RESULTS])
def test_a_process_ends_while_the_extension_is_called_or_its_results_are_used(program):
    assert_quiet("    import rust_extension", DEVICE, program)
