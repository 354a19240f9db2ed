"""Views of four libraries' arrays go from one Dask worker to another.

By TCP through the host, and by UCX from GPU to GPU, where distributed-ucxx is installed: with both
workers on one GPU, and where there are two with a GPU each.
"""

from __future__ import annotations

import ctypes
import importlib.util
from typing import Any

import pytest

from cai_bridge import convert

from . import dask_tasks as tasks
from .driver import load

distributed = pytest.importorskip("distributed")
pytest.importorskip("cai_bridge.dask")

LIBRARIES = [name for name in ("torch", "cupy", "jax", "numba") if importlib.util.find_spec(name)]
RUNS, SECONDS = 25, 60
BUSY_MS = 2000.0
pytestmark = [
    pytest.mark.usefixtures("driver"),
    pytest.mark.timeout(180),
    # Dask's own, of sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", params=["tcp", "ucxx", "ucxx, a GPU each"])
def client(request):
    """Two workers, each with the libraries on streams of their own."""
    protocol, _, apart = request.param.partition(", ")
    if protocol == "ucxx":
        pytest.importorskip("distributed_ucxx")
    if apart and load().get("cuDeviceGetCount", kind=ctypes.c_int) < 2:
        pytest.skip("one GPU")
    here = {"protocol": protocol, "host": "127.0.0.1", "dashboard": False}
    # Streams that share a queue of the device wait for each other, so there are many queues.
    queues = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    # A worker sees its GPU alone, as dask-cuda's do.
    shown = [queues | ({"CUDA_VISIBLE_DEVICES": str(n)} if apart else {}) for n in range(2)]
    workers = {
        n: {"cls": distributed.Nanny, "options": {**here, "nthreads": 1, "env": env}}
        for n, env in enumerate(shown)
    }
    scheduler = {"cls": distributed.Scheduler, "options": {**here, "dashboard_address": None}}
    with (
        distributed.SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        distributed.Client(cluster) as client,
    ):
        both = list(client.scheduler_info()["workers"])
        ready = [
            client.submit(tasks.setup, LIBRARIES, workers=[worker], pure=False) for worker in both
        ]
        for one in ready:
            one.result(timeout=120)
        client.both, client.protocol = both, protocol
        yield client


def sent(client: Any, library: str, value: float, busy_ms: float = 0.0) -> tuple[float, float]:
    first, second = client.both
    view = client.submit(tasks.written_late, library, value, busy_ms, workers=[first], pure=False)
    seen = client.submit(tasks.least_and_most, library, view, workers=[second], pure=False)
    found: tuple[float, float] = seen.result(timeout=SECONDS)
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_value_is_wrong(library, client, note):
    wrong = sum(
        sent(client, library, float(value)) != (value, value) for value in range(1, RUNS + 1)
    )
    name = f"Dask, {client.protocol}, {library}"
    note(f"{name}: {wrong} wrong of {RUNS} arrays that were written 50 ms late")
    assert wrong == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stream_that_is_busy_is_not_waited_for(library, client, note):
    assert sent(client, library, 7.0, BUSY_MS) == (7.0, 7.0)
    (busy,) = client.run(tasks.is_busy, workers=client.both[:1]).values()
    note(f"Dask, {client.protocol}, {library}: another stream is {'busy' if busy else 'done'}")
    # What UCX itself waits for in the sender's process is not the bridge's to say.
    is_asked = client.protocol == "tcp"
    assert busy or not is_asked, (
        "the host waited for a stream that has nothing to do with the array"
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_handed_to_ucx_waits_for_no_busy_stream(library, client):
    first = client.both[0]
    asked = client.submit(
        tasks.is_busy_once_handed_on, library, BUSY_MS, workers=[first], pure=False
    )
    assert asked.result(timeout=SECONDS)


def test_the_client_gets_a_copy_of_its_own(client):
    view = client.submit(tasks.written_late, LIBRARIES[0], 7.0, workers=client.both[:1], pure=False)
    assert set(convert(view.result(timeout=SECONDS), "numpy").tolist()) == {7.0}
