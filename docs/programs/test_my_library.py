from cai_bridge import to_cai
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
