"""`cai-bridge perturb`: a program whose wait is missing differs, and its operations are named."""

from __future__ import annotations

from typing import Any

import pytest
from perturbing import Perturb, driver, needs, run, seeds

from cai_bridge._cli import perturb

__all__ = ["driver", "run"]

pytestmark = needs

TWO = "a, b, x, y = stream(), stream(), word(), word()"


# Racy programs and their right twins: the twin's line replaces the one marked, or follows it.
RACY = {
    "a write and a read on two streams": f"""
        {TWO}
        for i in range(1, 4):
            launch("fill", a, x, i)
            {{wait}}
            launch("copy", b, y, x)
            print(read(y, b))
            order(b, a)
        """,
    "a read and the next write": f"""
        {TWO}
        for i in range(1, 4):
            launch("fill", a, x, i)
            order(a, b)
            launch("copy", b, y, x)
            {{back}}
            launch("fill", a, x, 777)
            print(read(y, b))
        """,
    "pinned memory that the host reads": """
        a, x, h = stream(), word(), pinned()
        for i in range(1, 4):
            launch("fill", a, x, i)
            call("cuMemcpyAsync", h, x, 8, a)
            {host}
            time.sleep(0.01)  # the host does something else
            print(peek(h))
            call("cuStreamSynchronize", a)
        """,
    "a non-blocking stream and the legacy one": """
        a, x, y = stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)
            {legacy}
            launch("copy", 0, y, x)
            print(read(y, 0))
        """,
    "a graph whose input is written elsewhere": f"""
        {TWO}
        call("cuStreamBeginCapture_v2", b, 0)
        launch("copy", b, y, x)
        graph = ended(b)
        for i in range(1, 4):
            launch("fill", a, x, i)
            {{wait}}
            call("cuGraphLaunch", graph, b)
            print(read(y, b))
            order(b, a)
        """,
    "a thread's own default stream": """
        a, x, y = stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)
            {own}
            launch("copy", 0, y, x, symbol="cuLaunchKernel_ptsz")
            print(read(y, PER_THREAD))
            order(PER_THREAD, a)
        """,
}


WAITS = {
    "wait": "order(a, b)",
    "back": "order(b, a)",
    "host": 'call("cuStreamSynchronize", a)',
    "legacy": "order(a, LEGACY)",
    "own": "order(a, PER_THREAD)",
}


NO_WAITS = dict.fromkeys(WAITS, "pass")


@pytest.mark.parametrize("name", RACY)
def test_a_racy_program_differs_within_the_covering_seeds(name: str, run: Perturb) -> None:
    status, found = run(RACY[name].format(**NO_WAITS))
    assert status == 1, found
    assert "a wait is missing" in found["conclusion"]


# The late operation, and the early one; of the second of two `fill` the source tells which.
NAMES = {
    "a write and a read on two streams": ('launch("fill", a, x, i)', 'launch("copy", b, y, x)'),
    "a read and the next write": ('launch("copy", b, y, x)', 'launch("fill", a, x, 777)'),
    "pinned memory that the host reads": (None, None),
    "a non-blocking stream and the legacy one": (
        'launch("fill", a, x, i)',
        'launch("copy", 0, y, x)',
    ),
    "a graph whose input is written elsewhere": (
        'launch("fill", a, x, i)',
        'call("cuGraphLaunch", graph, b)',
    ),
    "a thread's own default stream": (
        'launch("fill", a, x, i)',
        'launch("copy", 0, y, x, symbol="cuLaunchKernel_ptsz")',
    ),
}


def source(side: dict[str, Any] | None) -> str | None:
    lines = [frame[3] for frame in side["stack"] if "program.py" in frame[0]] if side else []
    return lines[-1] if lines else None


@pytest.mark.parametrize("name", RACY)
def test_the_two_operations_are_named_with_their_lines(name: str, run: Perturb) -> None:
    _, found = run(RACY[name].format(**NO_WAITS), named=True)
    race = found["race"]
    assert race, found
    late, early = NAMES[name]
    assert source(race["early"]) == early, race
    if late:
        assert source(race["late"]) == late, race
    else:
        assert race["late"]["function"] in {"cuLaunchKernel", "cuMemcpyAsync"}, race


BY_ITSELF = f"""
    import os, pathlib
    count = pathlib.Path(__file__).with_name("count")
    number = int(count.read_text()) if count.exists() else START
    count.write_text(str(number + 1))
    mode, serial = (os.environ.get("CAI_BRIDGE_PERTURB_" + one) for one in ("MODE", "SERIAL_FROM"))
    is_late = mode == "late" and int(serial or 9) > 1
    {TWO}
    for i in range(1, 4):
        launch("fill", a, x, i)
        launch("copy", b, y, x)
        wrong = is_late and i == 1 and "OFTEN"[number % len("OFTEN")] == "1"
        print(-1 if wrong else read(y, b))
        order(b, a)
    """


@pytest.mark.parametrize("often", ["01", "00000010000"])
@pytest.mark.parametrize("start", [1, 3])
def test_what_differs_by_itself_as_well_is_named_right_or_not_at_all(
    start: int, often: str, run: Perturb
) -> None:
    """As on a GPU with other work: every second run is wrong by itself, or one in eleven."""
    program = BY_ITSELF.replace("START", str(start)).replace("OFTEN", often)
    _, found = run(program, named=True)
    assert found["race"] or often == "01", found
    if race := found["race"]:
        sides = [source(race[side]) for side in ("late", "early")]
        assert sides == ['launch("fill", a, x, i)', 'launch("copy", b, y, x)'], race


SLOW = f"""
    import pathlib, time
    count = pathlib.Path(__file__).with_name("count")
    number = int(count.read_text()) if count.exists() else START
    count.write_text(str(number + 1))
    {TWO}
    for i in range(1, 4):
        launch("fill", a, x, i)
        if "OFTEN"[number % len("OFTEN")] == "1":
            time.sleep(0.04)
        launch("copy", b, y, x)
        print(read(y, b))
        order(b, a)
    """


# Those in which the run under seed 1, the fourth, is not a slow one.
@pytest.mark.parametrize(
    ("start", "often"),
    [
        *((1, "01"), (0, "0010"), (1, "0010"), (2, "0010"), (0, "0000100"), (2, "0000100")),
        *((0, "0100000010010"), (0, "000001111"), (2, "000000010100")),
    ],
)
def test_where_the_host_is_slower_than_what_is_late_it_is_later(
    start: int, often: str, run: Perturb
) -> None:
    """As beside other processes: in some runs the delay is over before the second one comes."""
    program = SLOW.replace("START", str(start)).replace("OFTEN", often)
    status, found = run(program, named=True)
    assert status == 1, found
    assert found["race"], found
    sides = [source(found["race"][side]) for side in ("late", "early")]
    assert sides == ['launch("fill", a, x, i)', 'launch("copy", b, y, x)'], found["race"]


def test_where_a_wait_of_the_host_hides_it_another_seed_names_it(run: Perturb) -> None:
    """While it is named no wait opens a gate: under seed 1 the host waits until all are over."""
    status, found = run(
        """
        c, b, a, x, y, z = stream(), stream(), stream(), word(), word(), word()
        for s in (c, b, a):
            launch("fill", s, z, 0)
            call("cuStreamSynchronize", s)
        for i in range(1, 4):
            launch("fill", c, z, i)
            launch("fill", a, x, i)
            call("cuStreamSynchronize", c)
            time.sleep(0.008)
            launch("copy", b, y, x)
            print(read(y, b))
            order(b, a)
        """,
        "--seeds",
        "4",
        named=True,
    )
    assert status == 1, found
    assert [one["verdict"] for one in seeds(found)][1:3] == ["differs", "differs"], found
    sides = [source((found["race"] or {}).get(side)) for side in ("late", "early")]
    assert sides == ['launch("fill", a, x, i)', 'launch("copy", b, y, x)'], found["race"]


# A library that queues work from a thread of its own, as JAX does, and has more to do there.
OF_A_THREAD = """
    import queue, threading
    b, a, c, v, w, x, y = stream(), stream(), stream(), word(), word(), word(), word()
    for s in (b, a, c):
        launch("fill", s, y, 0)
        call("cuStreamSynchronize", s)
    asked, done = queue.SimpleQueue(), queue.SimpleQueue()
    def work():
        for i in iter(asked.get, 0):
            launch("fill", a, w, i)
            done.put(launch("fill", a, v, 1))
    thread = threading.Thread(target=work)
    thread.start()
    for i in range(1, 4):
        asked.put(i)
        done.get()
        if COPIED:
            order(a, c)
            launch("copy", c, x, w)
        z = x if COPIED else w
        launch("copy", b, y, z)
        print(read(y, b))
        order(b, a)
        order(b, c)
    asked.put(0)
    thread.join()
    """


@pytest.mark.parametrize(
    ("copied", "late"), [(False, 'launch("fill", a, w, i)'), (True, 'launch("copy", c, x, w)')]
)
def test_the_read_is_the_last_in_time_and_the_write_the_main_threads_if_it_can_be(
    copied: bool, late: str, run: Perturb
) -> None:
    """What follows a late write in its own thread holds up all who wait for that thread."""
    status, found = run(OF_A_THREAD.replace("COPIED", str(copied)), named=True)
    assert status == 1, found
    sides = [source((found["race"] or {}).get(side)) for side in ("late", "early")]
    assert sides == [late, 'launch("copy", b, y, z)'], found["race"]


def test_operations_of_several_processes_that_have_one_number_are_all_told(run: Perturb) -> None:
    """The parent is right; its operations have the child's numbers, and are late with them."""
    _, found = run(
        f"""
        import subprocess, sys
        {TWO}
        for i in range(1, 4):
            if len(sys.argv) > 1:
                launch("fill", a, x, i)
            else:
                launch("spin", a, 0)
            launch("copy", b, y, x)
            print(read(y, b), flush=True)
            order(b, a)
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, __file__, "child"])
        """,
        named=True,
    )
    race = found["race"]
    assert race, found
    told = {source(one) for one in (race["late"], *race["late"]["others"])}
    assert told == {'launch("fill", a, x, i)', 'launch("spin", a, 0)'}, race
    assert source(race["early"]) == 'launch("copy", b, y, x)', race
    assert race["early"]["others"] == [], race


def test_a_hand_over_between_the_two_lines_is_named(run: Perturb) -> None:
    _, found = run(
        """
        class cupy:
            asarray = staticmethod(lambda x: x)
        a, b, x, y = stream(), stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)
            z = cupy.asarray(x)
            launch("copy", b, y, z)
            print(read(y, b))
            order(b, a)
        """,
        named=True,
    )
    assert found["race"]["advice"].startswith("between them: z = cupy.asarray(x)\n")
    assert "handed over by CAI" in found["race"]["advice"]


@pytest.mark.parametrize("name", RACY)
def test_with_the_wait_it_never_differs(name: str, run: Perturb) -> None:
    status, found = run(RACY[name].format(**WAITS), "--seeds", "14")
    assert status == 0, found
    assert sum(one["gates"] for one in found["runs"]) > 0


def test_seeds_cover_as_many_streams_as_the_program_has(run: Perturb) -> None:
    text = "x = word()\nfor s in [stream() for _ in range(5)]: launch('fill', s, x, 1)\nprint(1)"
    status, found = run(text)
    assert (status, len(seeds(found))) == (0, 6), found


@pytest.mark.parametrize(
    ("streams", "seeds"), [(0, 2), (1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (64, 12), (1000, 12)]
)
def test_the_number_of_covering_seeds(streams: int, seeds: int) -> None:
    assert perturb.covering(streams) == seeds
