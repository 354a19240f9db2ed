"""Views of four libraries' arrays go from one Dask worker to another, both on one GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from cai_bridge import convert

from . import dask_tasks as tasks

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


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers, each with the libraries on streams of their own."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = list(client.scheduler_info()["workers"])
        ready = [
            client.submit(tasks.setup, LIBRARIES, workers=[worker], pure=False)
            for worker in workers
        ]
        for one in ready:
            one.result(timeout=120)
        client.both = workers
        yield client


def sent(client: Any, library: str, value: float, busy_ms: float = 0.0) -> tuple[float, float]:
    first, second = client.both
    view = client.submit(tasks.written_late, library, value, busy_ms, workers=[first], pure=False)
    seen = client.submit(tasks.least_and_most, library, view, workers=[second], pure=False)
    found: tuple[float, float] = seen.result(timeout=SECONDS)
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_value_is_wrong(library: str, client: Any, note: Any) -> None:
    wrong = sum(
        sent(client, library, float(value)) != (value, value) for value in range(1, RUNS + 1)
    )
    note(f"Dask, {library}: {wrong} wrong of {RUNS} arrays that were written 50 ms late")
    assert wrong == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stream_that_is_busy_is_not_waited_for(library: str, client: Any) -> None:
    assert sent(client, library, 7.0, BUSY_MS) == (7.0, 7.0)
    (busy,) = client.run(tasks.is_busy, workers=client.both[:1]).values()
    assert busy, "the host waited for a stream that the array has nothing to do with"


def test_the_client_gets_a_copy_of_its_own(client: Any) -> None:
    view = client.submit(tasks.written_late, LIBRARIES[0], 7.0, workers=client.both[:1], pure=False)
    assert set(convert(view.result(timeout=SECONDS), "numpy").tolist()) == {7.0}
