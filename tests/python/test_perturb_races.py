"""`cai-bridge perturb`: a program whose wait is missing differs, and its operations are named."""

import pytest
from perturbing import TWO, driver, marked, needs, run, seeds, sides

from cai_bridge._cli import schedule

__all__ = ["driver", "run"]

pytestmark = needs

# Racy programs, with marks at the late operation and at the early one. In the right twin a wait
# stands where the racy one has `pass`.
RACY = {
    "a write and a read on two streams": f"""
        {TWO}
        for i in range(1, 4):
            launch("fill", a, x, i)  # late
            {{wait}}
            launch("copy", b, y, x)  # early
            print(read(y, b))
            order(b, a)
        """,
    "a read and the next write": f"""
        {TWO}
        for i in range(1, 4):
            launch("fill", a, x, i)
            order(a, b)
            launch("copy", b, y, x)  # late
            {{back}}
            launch("fill", a, x, 777)  # early
            print(read(y, b))
        """,
    "pinned memory that the host reads": """
        a, x, h = stream(), word(), pinned()
        for i in range(1, 4):
            launch("fill", a, x, i)
            call("cuMemcpyAsync", h, x, 8, a)  # late
            {host}
            time.sleep(0.01)  # the host does something else
            print(peek(h))
            call("cuStreamSynchronize", a)
        """,
    "a non-blocking stream and the legacy one": """
        a, x, y = stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)  # late
            {legacy}
            launch("copy", 0, y, x)  # early
            print(read(y, 0))
        """,
    "a graph whose input is written elsewhere": f"""
        {TWO}
        call("cuStreamBeginCapture_v2", b, 0)
        launch("copy", b, y, x)
        graph = made("cuGraphInstantiateWithFlags", ended(b), 0)
        for i in range(1, 4):
            launch("fill", a, x, i)  # late
            {{wait}}
            call("cuGraphLaunch", graph, b)  # early
            print(read(y, b))
            order(b, a)
        """,
    "a thread's own default stream": """
        a, x, y = stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)  # late
            {own}
            launch("copy", 0, y, x, symbol="cuLaunchKernel_ptsz")  # early
            print(read(y, PER_THREAD))
            order(PER_THREAD, a)
        """,
    "late work on a thread's own default stream": """
        b, x, y = stream(), word(), word()
        for i in range(1, 4):
            launch("fill", 0, x, i, symbol="cuLaunchKernel_ptsz")  # late
            {late}
            launch("copy", b, y, x)  # early
            print(read(y, b))
            order(b, PER_THREAD)
        """,
    "a stream that is destroyed before the next one is used": """
        x, y = word(), word()
        for i in range(1, 4):
            a, b = stream(), stream()
            launch("fill", a, x, i)  # late
            {wait}
            call("cuStreamDestroy_v2", a)
            launch("copy", b, y, x)  # early
            print(read(y, b))
            call("cuStreamDestroy_v2", b)
        """,
    "one of eight batches that are all queued before the host waits": """
        a, b, y = stream(), stream(), word()
        x = [word() for _ in range(8)]
        for i in range(8):
            launch("fill", a, x[i], i + 1, pause=0.001)  # late
            if i != 4:
                order(a, b)
            else:
                {wait}
            launch("add", b, y, x[i], pause=0.001)  # early
        print(read(y, b))
        """,
    "one of five streams that a join waits for": """
        c, y, s = stream(), word(), [stream() for _ in range(5)]
        x = [word() for _ in s]
        for i in range(5):
            launch("fill", s[i], x[i], i + 1)  # late
            if i != 2:
                order(s[i], c)
            else:
                {join}
        for i in range(5):
            launch("add", c, y, x[i])  # early
        print(read(y, c))
        """,
    "two threads, each on its own default stream": """
        import threading
        x, y, wrote, ready = word(), word(), event(), threading.Event()
        def writer():
            launch("fill", PER_THREAD, x, 7)  # late
            call("cuEventRecord", wrote, PER_THREAD)
            ready.set()
        def reader():
            ready.wait()
            {event}
            launch("copy", PER_THREAD, y, x)  # early
            print(read(y, PER_THREAD))
        for thread in [threading.Thread(target=one) for one in (writer, reader)]:
            thread.start()
        """,
}
WAITS = {
    "wait": "order(a, b)",
    "back": "order(b, a)",
    "host": 'call("cuStreamSynchronize", a)',
    "legacy": "order(a, LEGACY)",
    "own": "order(a, PER_THREAD)",
    "late": "order(PER_THREAD, b)",
    "join": "order(s[i], c)",
    "event": 'call("cuStreamWaitEvent", PER_THREAD, wrote, 0)',
}
NO_WAITS = dict.fromkeys(WAITS, "pass")
BATCHES = "one of eight batches that are all queued before the host waits"


@pytest.mark.parametrize("name", RACY)
def test_a_racy_program_differs_and_the_two_operations_are_named_with_their_lines(name, run):
    text = RACY[name].format(**NO_WAITS)
    status, found = run(text, named=True)
    assert status == 1, found
    assert "a wait is missing" in found["conclusion"]
    assert sides(found) == marked(text), found
    if name == BATCHES:
        # Which of its launches each of the two was.
        race = found["race"]
        places = [(race[side]["place"], race[side]["count"]) for side in ("late", "early")]
        assert places == [(5, 8), (5, 8)]


@pytest.mark.parametrize("name", RACY)
def test_with_the_wait_it_never_differs(name, run):
    status, found = run(RACY[name].format(**WAITS), "--seeds", "14")
    assert status == 0, found
    assert sum(one["gates"] for one in found["runs"]) > 0


def test_a_block_that_is_used_again_too_early_shows_where_its_user_is_late_from_the_middle_on(run):
    """Its user's own write is late with the read, and puts right what the read finds."""
    text = f"""
        {TWO}
        launch("fill", a, x, 1)
        launch("copy", a, y, x)  # late
        {{back}}
        launch("fill", b, x, 777)  # early
        print(read(y, a))
        """
    racy, right = text.format(back="pass"), text.format(back="order(a, b)")
    assert run(racy)[0] == 0
    _, found = run(racy, "--thorough", named=True)
    assert sides(found) == marked(racy), found["race"]
    status, found = run(right, "--thorough")
    assert (status, [one["verdict"] for one in found["runs"][2:]]) == (0, ["same"] * 4), found


def test_seeds_cover_as_many_streams_as_the_program_has(run):
    text = "x = word()\nfor s in [stream() for _ in range(5)]: launch('fill', s, x, 1)\nprint(1)"
    status, found = run(text)
    assert (status, len(seeds(found))) == (0, 6), found
    assert [one["run"] for one in found["runs"][8:]] == [f"stream {index}" for index in range(5)]


def test_the_number_of_covering_seeds():
    of = {0: 2, 1: 2, 2: 2, 3: 4, 4: 4, 5: 6, 64: 12, 1000: 12}
    assert {streams: schedule.covering(streams) for streams in of} == of
