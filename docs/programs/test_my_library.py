from cai_bridge import adapt, to_cai
from cai_bridge.testing import simulated_cuda


def test_my_library_reads_what_was_written():
    with simulated_cuda() as cuda:  # a report raises at the end
        producer, mine = cuda.stream("producer"), cuda.stream("mine")
        x = cuda.array([0.0] * 4, dtype="float32", speaks="exchange")
        producer.fill(x, 7.0)  # queued; runs late
        with cuda.current_stream(producer):
            view = to_cai(x, stream=mine)
        seen = mine.read(view)
        mine.synchronize()
        assert seen.value == [7.0] * 4


def test_a_function_for_cupys_arrays():
    with simulated_cuda() as cuda:
        torchs, cupys = cuda.stream("torch's"), cuda.stream("CuPy's")

        def doubled(x):  # stands in for a function that launches a kernel
            y = cuda.array([0.0] * 4, stream=cupys)
            cupys.read(x)
            cupys.fill(y, 2.0)
            return y

        x = cuda.array([0.0] * 4, speaks="exchange", name="x")
        with torchs:  # the current stream
            torchs.fill(x, 1.0)
            y = adapt(doubled, to="cai", stream=cupys)(x)  # in the program: to="cupy"
            seen = torchs.read(y)
        cuda.synchronize()
        assert seen.value == [2.0] * 4
