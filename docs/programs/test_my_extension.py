import rows

from cai_bridge import to_cai
from cai_bridge.testing import simulated_cuda


def test_rows_are_ready_and_given_back_in_order():
    with simulated_cuda() as cuda:  # a report raises at the end
        producer, work = cuda.stream("producer"), cuda.stream("the extension's")
        x = cuda.array([0.0] * 4, dtype="float32", speaks="cai", stream=producer, memory="pool")
        producer.fill(x, 7.0)  # queued; runs late
        part = rows.rows(x, 1, 3, work.handle)
        view = to_cai(part, stream=work)
        seen = work.read(view)  # in place of the kernel
        del x, part, view  # the memory goes back to the producer's pool
        y = cuda.array(shape=4, dtype="float32", speaks="cai", stream=producer, memory="pool")
        producer.fill(y, 9.0)  # has to wait for the kernel
        cuda.synchronize()
        value = seen.value
    assert value == [7.0, 7.0]  # a race has raised by now
