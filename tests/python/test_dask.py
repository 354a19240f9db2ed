"""Views go from worker to worker of a real Dask cluster, with a simulated device in each worker."""

import ctypes
import gc
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

import launching
from cai_bridge import convert, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
protocol = pytest.importorskip("distributed.protocol")
tasks = pytest.importorskip("dask_tasks")
bridge = pytest.importorskip("cai_bridge.dask")

pytestmark = [
    # Dask's own, among them sockets of workers that were killed.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SECONDS = 20
KINDS = ["CaiView", "DLPackView"]
DTYPES = ["bool", "int64", "float16", "float32", "complex64", "bfloat16", "float8_e4m3fn"]


@pytest.fixture(scope="module")
def client():
    """Three workers, the last one without a GPU."""
    config = {"distributed.worker.preload": ["dask_tasks"]}
    with (
        dask.config.set(config),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def address(client, name):
    workers = client.scheduler_info()["workers"]
    (found,) = [address for address, worker in workers.items() if worker["name"] == name]
    return found


@pytest.fixture
def on(client):
    """Run tasks on the worker of that number; what its check for races finds fails the test."""

    def worker(number):
        where = [address(client, number)]
        return lambda task, *given: client.submit(task, *given, workers=where, pure=False)

    yield worker
    for found in client.run(tasks.reports).values():
        assert found == []


def result(future):
    return future.result(timeout=SECONDS)


def at(client, number, ask, *arguments):
    """Ask a worker beside its tasks."""
    (answer,) = client.run(ask, *arguments, workers=[address(client, number)]).values()
    return answer


# Kinds of arrays: values, their type, and whether they are read-only.
ARRAYS = [
    ([[True, False], [False, True]], "bool", False),
    *(([[1, 2], [3, 4]], dtype, False) for dtype in DTYPES if dtype != "bool"),
    *((values, "float32", False) for values in ([], [[], []], 5.0)),
    ([1.0, 2.0], "float32", True),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("values", "dtype", "readonly"), ARRAYS, ids=str)
def test_an_array_of_each_kind_arrives(values, dtype, readonly, kind, on):
    view = on(0)(tasks.made, kind, values, dtype, readonly)
    there, here = result(on(1)(tasks.seen, view)), result(on(0)(tasks.seen, view))
    assert there == here
    assert there[:4] == (kind, np.shape(values), dtype, readonly)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_types_that_numpy_has_not_arrive_by_name_without_ml_dtypes(dtype, client, on):
    view = on(0)(tasks.made, "DLPackView", [1, 2, 3], dtype)
    expected = result(on(0)(tasks.seen, view))
    for number in (0, 1):
        at(client, number, tasks.hide_ml_dtypes, True)
    try:
        assert result(on(1)(tasks.seen, view)) == expected
    finally:
        for number in (0, 1):
            at(client, number, tasks.hide_ml_dtypes, False)


def test_it_is_sent_once_it_is_written_and_no_other_stream_is_waited_for(client, on):
    view = on(0)(tasks.late, 7.0)
    assert result(on(1)(tasks.seen, view))[-1] == np.full(4, 7.0, "float32").tobytes()
    assert at(client, 0, tasks.pending) == 1, "the other stream's work has not run"


def test_in_the_same_worker_it_is_the_same_memory_and_another_one_has_its_own_copy(on):
    view = on(0)(tasks.late, 7.0)
    assert result(on(1)(tasks.written, view, 8.0)) == [8.0] * 4
    assert result(on(0)(tasks.values, view)) == [7.0] * 4
    assert result(on(0)(tasks.address, view)) == result(on(0)(tasks.address, view))
    assert result(on(0)(tasks.written, view, 8.0)) == [8.0] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_strides_arrive_as_values(kind, on):
    view = on(0)(tasks.strided, kind)
    there = result(on(1)(tasks.seen, view))
    assert there == result(on(0)(tasks.seen, view))
    assert np.frombuffer(there[-1], "float32").tolist() == [8.0, 10.0, 4.0, 6.0, 0.0, 2.0]


def test_views_in_a_collection_arrive_and_on_the_current_gpu_of_the_receiver(on):
    both = on(0)(tasks.two)
    assert result(on(0)(tasks.of_both, both)) == [((2, 1), [1.0]), ((2, 0), [2.0])]
    assert result(on(1)(tasks.of_both, both)) == [((2, 0), [1.0]), ((2, 0), [2.0])]


def test_a_client_has_its_own_copy_scatters_a_view_and_cannot_put_it_into_a_graph(client, on, cuda):
    assert tasks.values(result(on(0)(tasks.late, 7.0))) == [7.0] * 4
    x = cuda.array([0.0] * 4, speaks="cai3")
    cuda.stream("late").fill(x, 7.0)
    view = to_dlpack(x)
    there = client.scatter(view, workers=[address(client, 0)], hash=False)
    assert result(on(1)(tasks.values, there)) == [7.0] * 4
    with pytest.raises(TypeError, match=r"cannot pickle a DLPackView|Could not serialize"):
        result(on(1)(tasks.values, view))


def test_a_task_in_a_worker_without_a_gpu_raises_what_to_do(on):
    view = on(0)(tasks.late, 7.0)
    for task in (tasks.used, tasks.address):
        with pytest.raises(bridge.NoGpuError, match=r'convert\(x, "numpy"\) as what the task'):
            result(on(2)(task, view))
    assert result(on(1)(tasks.seen, view))[1] == (4,), "the others go on"


def test_so_does_the_use_in_a_client_without_a_gpu(on):
    view = result(on(0)(tasks.late, 7.0))
    assert type(view) is bridge.Undelivered
    assert "NoGpuError" not in repr(view)
    assert "without a GPU" in repr(view)
    for use in (to_cai, to_dlpack, lambda x: convert(x, "numpy"), lambda x: x.shape):
        with pytest.raises(bridge.NoGpuError, match="without a GPU"):
            use(view)


def test_a_view_that_cannot_be_sent_says_why_where_it_is_used(on):
    said = "not be sent: BufferError: view: got a released"
    with pytest.raises(bridge.DeliveryError, match=said):
        result(on(1)(tasks.used, on(0)(tasks.released)))


def test_the_receivers_driver_says_why_it_failed(on, client):
    view = on(0)(tasks.late, 7.0)
    at(client, 1, tasks.no_memory)
    with pytest.raises(bridge.DeliveryError, match=r"could not be received: .*OUT_OF_MEMORY"):
        result(on(1)(tasks.used, view))


def until(holds, told):
    """Wait, for a worker that was killed or for the one that takes its place."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


def wait_for_three(client):
    def names():
        return {worker["name"] for worker in client.scheduler_info()["workers"].values()}

    until(lambda: names() == {0, 1, 2}, "no worker took its place")


def test_a_sender_that_is_killed_while_it_sends_loses_nothing(client, on, tmp_path):
    both = {address(client, 0), address(client, 1)}
    view = client.submit(tasks.deadly, 7.0, str(tmp_path / "killed"), workers=list(both))
    distributed.wait(view, timeout=SECONDS)
    (sender,) = client.who_has(view)[view.key]
    future = client.submit(tasks.values, view, workers=list(both - {sender}))
    assert result(future) == [7.0] * 4, "made again"
    wait_for_three(client)
    assert sender not in client.scheduler_info()["workers"], "it was killed"


def test_a_receiver_that_is_killed_while_it_receives_leaves_nothing_with_the_sender(client, on):
    before = address(client, 1)
    view = on(0)(tasks.lent)
    result(on(0)(tasks.used, view))
    at(client, 1, tasks.die_when_receiving)
    lost = on(1)(tasks.used, view)
    until(lambda: before not in client.scheduler_info()["workers"], "it was not killed")
    lost.release()
    wait_for_three(client)
    assert result(on(1)(tasks.seen, view))[1] == (2,)
    assert at(client, 0, tasks.is_lent), "the worker holds the view"
    view.release()
    at(client, 0, tasks.forget_logs)
    until(lambda: not at(client, 0, tasks.is_lent), "nobody needs the view any more")


def dict_of(said, keep):
    return type("D", (), {"__cuda_array_interface__": said, "keep": keep})()


def received(cuda, frame):
    """Memory that UCX has written, as distributed-ucxx hands it over."""
    said = frame.__cuda_array_interface__
    assert said["stream"] is None, "UCX waits for no stream"
    assert (said["typestr"], said["shape"]) == ("|u1", (frame.nbytes,))
    # UCX copies when it is told: what is pending by then is not there.
    host = np.frombuffer(ctypes.string_at(said["data"][0], frame.nbytes), "u1")
    return cuda.array(host, dtype="uint8", speaks="cai3")


def by_ucx(cuda, view):
    """Send a view as a comm of UCX does; return its header, and what arrives."""
    header, frames = protocol.serialize(view, serializers=("cuda", "dask", "pickle", "error"))
    assert header["serializer"] == "cuda"
    return header, protocol.deserialize(header, [received(cuda, frame) for frame in frames])


@pytest.mark.parametrize("door", [to_cai, to_dlpack])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ucx_is_lent_the_memory_once_it_is_written(dtype, door, cuda):
    stream, busy = cuda.stream("late"), cuda.stream("busy")
    values = [[True, False]] if dtype == "bool" else [[1, 2]]
    x = cuda.array(values, dtype=dtype, speaks="cai3", stream=stream)
    other = cuda.array([0.0])
    busy.fill(other, 1.0)
    view = door(x)
    cuda.clear_calls()
    _, there = by_ucx(cuda, view)
    waits = [made.call for made in cuda.calls if "Synchronize" in made.call]
    assert waits == ["cuEventSynchronize"], "the host waits for the array, and for nothing else"
    assert tasks.seen(there) == tasks.seen(view)
    cuda.synchronize()


@pytest.mark.parametrize("door", [to_cai, to_dlpack])
def test_ucx_is_lent_a_copy_of_what_is_not_compact_and_no_frame_of_no_bytes(door, cuda):
    x = cuda.array(np.arange(6.0, dtype="float32").reshape(2, 3), speaks="cai3")
    said = {**x.__cuda_array_interface__, "shape": (3, 2), "strides": (4, 12)}
    _, there = by_ucx(cuda, door(dict_of(said, x)))
    assert convert(there, "numpy").tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    _, there = by_ucx(cuda, door(cuda.array(np.zeros((0, 3), "float32"))))
    assert there.shape == (0, 3)


@pytest.mark.parametrize("family", ["dask", "cuda"])
def test_a_header_names_no_address_no_device_and_no_stream(family, cuda):
    view = to_cai(cuda.array([1.0, 2.0], stream=cuda.stream()))
    header, _ = protocol.serialize(view, serializers=(family, "error"))
    assert header["sub-header"] == {
        "version": 1,
        "is_cai": True,
        "shape": (2,),
        "typestr": "<f4",
        "dtype": "float32",
        "readonly": False,
    }


def test_another_version_of_the_bridge_and_types_of_the_dict_alone_are_refused(cuda):
    header, frames = protocol.serialize(to_cai(cuda.array([1.0])), serializers=("dask", "error"))
    header["sub-header"]["version"] = 2
    with pytest.raises(bridge.DeliveryError, match=r"version: got 2 from another .*; allowed: 1"):
        to_cai(protocol.deserialize(header, frames))
    x = cuda.array([1, 2], dtype="int64", speaks="cai3")
    dates = to_cai(dict_of({**x.__cuda_array_interface__, "typestr": "<M8[s]"}, x))
    header, frames = protocol.serialize(dates, serializers=("dask", "error"))
    with pytest.raises(bridge.DeliveryError, match=r"dtype: got <M8\[s\]; allowed: a type"):
        to_cai(protocol.deserialize(header, frames))


@pytest.mark.parametrize("family", ["dask", "cuda"])
def test_nothing_is_left_over_of_views_that_were_sent(family, cuda):
    x = cuda.array([1.0] * 4, stream=cuda.stream())
    for _ in range(20):
        view = to_dlpack(x)
        header, frames = protocol.serialize(view, serializers=(family, "error"))
        there = protocol.deserialize(header, frames)
        del view, header, frames, there
    gc.collect()
    cuda.synchronize()
    assert x.exports == 0


def test_dask_counts_the_bytes_of_a_view_and_gives_each_a_key_of_its_own(cuda):
    x = cuda.array(np.zeros(1 << 20, "float32"))
    for door in (to_cai, to_dlpack):
        view = door(x)
        assert dask.sizeof.sizeof(view) == 4 << 20
        assert dask.base.tokenize(view) != dask.base.tokenize(view)


def test_what_arrives_in_place_of_a_view_is_sent_on_and_is_one_again_where_there_is_a_gpu():
    with simulated_cuda() as cuda:
        header, frames = protocol.serialize(
            to_cai(cuda.array([1.0, 2.0])), serializers=("dask", "error")
        )
    one = protocol.deserialize(header, frames)
    assert type(one) is bridge.Undelivered
    assert dask.sizeof.sizeof(one) >= 8
    assert not hasattr(one, "_name_of_dasks")
    assert not dask.is_dask_collection(one)
    again = pickle.loads(pickle.dumps(one))
    with pytest.raises(bridge.NoGpuError, match="without a GPU"):
        to_cai(again)
    header, frames = protocol.serialize(again, serializers=("dask", "error"))
    with simulated_cuda():
        view = protocol.deserialize(header, frames)
        assert convert(view, "numpy").tolist() == [1.0, 2.0]


CHILD = """
import sys
{first}
import cai_bridge
from cai_bridge.testing import simulated_cuda
assert ("cai_bridge.dask" in sys.modules, "distributed" in sys.modules) == (False, {loaded})
{then}
with simulated_cuda() as cuda:
    from distributed.protocol import serialize
    header, _ = serialize(cai_bridge.to_cai(cuda.array([1.0])), serializers=("dask", "error"))
    print(header["serializer"])
"""


@pytest.mark.parametrize(
    ("first", "then", "serializer"),
    [("import distributed", "", "dask"), ("", "import cai_bridge.dask", "dask"), ("", "", "error")],
    ids=["Dask was there", "asked for", "neither"],
)
def test_dask_finds_the_serializers_and_the_bridge_imports_nothing_of_it(first, then, serializer):
    code = CHILD.format(first=first, then=then, loaded=bool(first))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == (serializer, 0), done.stderr


PROGRAM = launching.PROGRAMS / "with_dask.py"


def test_the_program_of_the_page_is_right_for_arrays_of_all_libraries():
    status, printed = launching.run(sys.executable, "-W", "error::RuntimeWarning", PROGRAM)
    assert status == 0, printed
    seen = launching.results(printed)
    assert [(value, right) for _, value, right in seen] == [(str(n), str(n)) for n in range(1, 5)]


def test_the_program_ends_with_an_error_if_a_value_is_wrong(tmp_path):
    line = '    return here.name, float(convert(x, "numpy").mean())\n'
    changed = launching.changed(tmp_path, "with_dask.py", line, line.replace(".mean", ".sum"))
    status, printed = launching.run(sys.executable, changed)
    assert status == 4, printed
