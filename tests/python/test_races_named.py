"""`cai-bridge races`: which two operations are named, over a driver in software."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from perturbing import DRIVER, TWO, commanded, driver, marked, needs, source
from test_perturb_races import NO_WAITS, RACY, WAITS

__all__ = ["driver"]

pytestmark = needs

HOST = "pinned memory that the host reads"


@pytest.fixture
def run(driver, tmp_path, monkeypatch):
    return commanded("races", driver, tmp_path, monkeypatch)


def named(found, *verdicts):
    pairs = [one for one in found["pairs"] if one["verdict"] in verdicts]
    return {(source(one["first"]), source(one["second"])) for one in pairs}


@pytest.mark.parametrize("name", RACY)
def test_the_pair_of_a_racy_program_is_proven_and_no_other_one_and_none_with_the_wait(name, run):
    if name != HOST:
        text = RACY[name].format(**NO_WAITS)
        lines, (status, found) = marked(text), run(text)
        proven = named(found, "proven")
        assert status == 1, found
        assert proven >= {tuple(lines)}, found
        # One that races in each round may race with the round before as well, at these lines.
        assert {line for pair in proven for line in pair} == set(lines), found
    status, found = run(RACY[name].format(**WAITS))
    assert (status, named(found, "proven", "race")) == (0, set()), found


def test_what_the_host_reads_by_itself_is_not_seen_and_said_to_be(run):
    status, found = run(RACY[HOST].format(**NO_WAITS))
    assert status == 0
    assert "what the host reads and writes by itself" in found["conclusion"]


def test_with_host_its_early_read_is_seen_and_one_in_time_is_not(run):
    status, found = run(RACY[HOST].format(**NO_WAITS), "--host")
    pairs = {
        (source(one["first"]), one["second"]["kernel"], source(one["second"]))
        for one in found["pairs"]
    }
    assert status == 1, found
    late, _ = marked(RACY[HOST])
    assert pairs == {(late, "the host", "print(peek(h))")}, found
    status, found = run(RACY[HOST].format(**WAITS), "--host")
    assert (status, found["pairs"]) == (0, []), found


@pytest.mark.parametrize("waited", [False, True])
def test_with_host_a_buffer_that_is_filled_again_too_early_is_seen(waited, run):
    status, found = run(
        f"""
        a, x, h = stream(), word(), pinned()
        for i in range(3):
            c_uint64.from_address(h).value = i  # the host's write
            call("cuMemcpyAsync", x, h, 8, a)
            if {waited}: call("cuStreamSynchronize", a)
        call("cuCtxSynchronize")
        """,
        "--host",
    )
    assert status == (not waited), found
    assert [one["second"]["how"] for one in found["pairs"]] == ["writes"] * (not waited), found


# Racy programs and their right twins: {right} is 1 in the twin.
MORE = {
    "a stream uses memory of a pool that is not there yet": """
        a, b, x = stream(), stream(), c_uint64()
        assert cuda.cuMemAllocAsync(byref(x), c_uint64(64), c_uint64(a)) == 0
        if {right}: order(a, b)
        launch("fill", b, x.value, 1)
        """,
    "the host frees memory of a pool in use": """
        a, x = stream(), c_uint64()
        assert cuda.cuMemAllocAsync(byref(x), c_uint64(64), c_uint64(a)) == 0
        launch("fill", a, x.value, 1)
        if {right}: call("cuStreamSynchronize", a)
        call("cuMemFree_v2", x)
        """,
    "memory of a pool is freed on another stream": """
        a, b, x = stream(), stream(), c_uint64()
        assert cuda.cuMemAllocAsync(byref(x), c_uint64(64), c_uint64(a)) == 0
        launch("fill", a, x.value, 1)
        if {right}: order(a, b)
        assert cuda.cuMemFreeAsync(x, c_uint64(b)) == 0
        """,
    "the event is recorded again behind the wait": f"""
        {TWO}
        e = event()
        call("cuEventRecord", e, a)
        if {{right}}:
            launch("fill", a, x, 7)
            call("cuEventRecord", e, a)
            call("cuStreamWaitEvent", b, e, 0)
        else:
            call("cuStreamWaitEvent", b, e, 0)
            launch("fill", a, x, 7)
            call("cuEventRecord", e, a)
        launch("copy", b, y, x)
        """,
    "the host asks until a stream is over": f"""
        {TWO}
        launch("fill", a, x, 7)
        while {{right}} and cuda.cuStreamQuery(c_uint64(a)) == 600: time.sleep(0.001)
        launch("copy", b, y, x)
        """,
    # In order, as in the second run, the host finds the work done: there nothing races.
    "the host asks once whether a stream is over, too early": f"""
        {TWO}
        launch("spin", a, 30_000)
        launch("fill", a, x, 7)
        if {{right}}: call("cuStreamSynchronize", a)
        cuda.cuStreamQuery(c_uint64(a))
        launch("copy", b, y, x)
        """,
    "a host function that does not run in time": f"""
        {TWO}
        done = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None)
        launch("spin", a, 30_000)
        launch("fill", a, x, 7)
        assert cuda.cuLaunchHostFunc(*map(c_uint64, (a, ctypes.cast(done, c_void_p).value, 0))) == 0
        if {{right}}: call("cuStreamSynchronize", a)
        launch("copy", b, y, x)
        """,
    "a graph is launched again before another stream has read": """
        cap, a, b, x, y = stream(), stream(), stream(), word(), word()
        call("cuStreamBeginCapture_v2", cap, 2)
        launch("add", cap, y, x)
        g = made("cuGraphInstantiateWithFlags", ended(cap), 0)
        launch("fill", a, x, 1)
        call("cuGraphLaunch", g, a)
        if {right}: call("cuGraphLaunch", g, b)
        else: launch("copy", b, x, y)
        """,
    "the legacy default stream and one that does not block": """
        x, y, other = word(), word(), stream(0 if {right} else NON_BLOCKING)
        launch("fill", other, x, 7)
        launch("copy", LEGACY, y, x)
        """,
    "two streams read, and one of them writes in place": """
        a, b, w, x, g = stream(), stream(), word(), word(), word()
        launch("fill", a, w, 7)
        launch("fill", a, g, 1)
        order(a, b)
        launch("copy", b, x, w)
        if {right}: order(b, a)
        launch("add", a, w, g)
        """,
}


@pytest.mark.parametrize("name", MORE)
def test_more_racy_programs_are_proven_and_their_twins_are_not(name, run):
    status, found = run(MORE[name].format(right=0))
    assert (status, bool(named(found, "proven"))) == (1, True), found
    status, found = run(MORE[name].format(right=1))
    assert (status, named(found, "proven", "race")) == (0, set()), found


def test_of_a_value_that_a_stream_waits_for_nothing_is_said(run):
    text = """
        a, b, x, y, flag = stream(), stream(), word(), word(), word()
        launch("fill", a, x, 7)
        if {write}:
            assert cuda.cuStreamWriteValue64_v2(*map(c_uint64, (a, flag, 1, 0))) == 0
        else:
            c_uint64.from_address(flag).value = 1
        assert cuda.cuStreamWaitValue64_v2(*map(c_uint64, (b, flag, 1, 0))) == 0
        launch("copy", b, y, x)
        """
    status, found = run(text.format(write=1))
    assert (status, found["seen"]["orders"], found["pairs"]) == (0, 0, []), found
    status, found = run(text.format(write=0))
    assert (status, found["seen"]["orders"], found["pairs"]) == (0, 1, []), found
    assert "1 waits for what is not known" in found["conclusion"]


# XLA launches its kernels with attributes: in clusters, and some record an event.
WITH_AN_ATTRIBUTE = f"""
    {TWO}
    values = [c_uint64(y), c_uint64(x)]
    addresses = (c_void_p * 2)(*[ctypes.addressof(one) for one in values])
    attributes = (c_uint64 * 9)(ATTRIBUTE)
    config = (c_uint64 * 7)(*[1 << 32 | 1] * 3, 1, b, ctypes.addressof(attributes), 1)
    kernel = made("cuModuleGetFunction", 0, b"copy")
    launch("fill", a, x, 7)
    assert cuda.cuLaunchKernelEx(config, c_uint64(kernel), addresses, None) == 0
    """
# Programs whose one pair is proven, or a suspect for what is said of its second launch.
ONE_PAIR = {
    # It is given an address that it leaves alone, and would seem to read what is there.
    "it leaves something else each time": (
        f"""
        {TWO}
        launch("fill", a, x, 7)
        launch("noise", b, y, x)
        """,
        *("suspect", ""),
    ),
    "it may write to the host's memory": (
        """
        a, b, x, h = stream(), stream(), word(), pinned()
        launch("fill", a, x, 7)
        launch("copy", b, h, x)
        print(peek(h))
        """,
        *("suspect", "the host's"),
    ),
    "its clusters": (WITH_AN_ATTRIBUTE.replace("ATTRIBUTE", "4"), "proven", ""),
    "its programmatic order": (WITH_AN_ATTRIBUTE.replace("ATTRIBUTE", "6"), "proven", ""),
    "its event": (WITH_AN_ATTRIBUTE.replace("ATTRIBUTE", "12"), "suspect", "attributes"),
}


@pytest.mark.parametrize("name", ONE_PAIR)
def test_a_launch_that_cannot_be_repeated_proves_nothing(name, run):
    text, verdict, why = ONE_PAIR[name]
    status, found = run(text)
    (pair,) = found["pairs"]
    assert (status, pair["verdict"]) == (verdict == "proven", verdict), found
    assert why in pair["second"]["why"], found
    assert verdict == "suspect" or "attributes" not in pair["second"]["why"], found
    assert "noise" not in text or found["seen"]["varying"] == 1


@pytest.mark.parametrize("right", [0, 1])
def test_an_array_is_seen_behind_its_descriptor(right, run):
    """Hopper's copy engine is given 128 bytes that describe an array."""
    status, found = run(
        f"""
        a, b, x, y, z = stream(), stream(), word(), word(), word()
        kernel = made("cuModuleGetFunction", 0, b"gather")
        descriptor = (c_uint64 * 16)()
        rest = [c_uint64(0)] * 8
        encode = cuda.cuTensorMapEncodeTiled
        assert encode(descriptor, c_uint64(1), c_uint64(1), c_uint64(z), *rest) == 0
        assert cuda.cuTensorMapReplaceAddress(descriptor, c_uint64(x)) == 0
        to = c_uint64(y)
        addresses = (c_void_p * 2)(ctypes.addressof(to), ctypes.addressof(descriptor))
        launch("fill", a, x, 7)
        if {right}: order(a, b)
        call("cuLaunchKernel", kernel, *[1] * 6, 0, b, ctypes.addressof(addresses), None)
        """
    )
    read = 'call("cuLaunchKernel", kernel, *[1] * 6, 0, b, ctypes.addressof(addresses), None)'
    proven = set() if right else {('launch("fill", a, x, 7)', read)}
    assert (status, named(found, "proven")) == (not right, proven), found


def test_of_a_graph_the_line_is_said_in_which_the_node_was_captured(run):
    _, found = run(
        f"""
        {TWO}
        v, w = word(), word()
        call("cuStreamBeginCapture_v2", b, 0)
        launch("copy", b, w, v)
        launch("copy", b, y, x)  # the node
        graph = made("cuGraphInstantiateWithFlags", ended(b), 0)
        launch("fill", a, x, 1)
        call("cuGraphLaunch", graph, b)
        """
    )
    (pair,) = found["pairs"]
    lines = [[one[1] for one in node if "program.py" in one[0]] for node in pair["second"]["nodes"]]
    assert (pair["verdict"], lines, pair["first"]["nodes"]) == ("proven", [[7]], []), found


# The host finds out that the work is done, by luck: on a GPU that is slower it would not.
LUCK = """
    a, b, x, y = stream(), stream(), word(), word()
    posix, kept, ran = ctypes.CDLL(None), [], []
    for i in range(20):
        launch("fill", a, x, i, pause=0)  # late
        LUCK
        launch("copy", b, y, x, pause=0)  # early
        order(b, a)
    """


def by_luck(text):
    return LUCK.replace("LUCK", textwrap.indent(textwrap.dedent(text).strip(), 8 * " ").strip())


# Racy programs with marks at their two lines, and right twins, of which nothing is said.
TWINS = {
    "by luck: it asks an event once": by_luck("""
        done = event()
        call("cuEventRecord", done, a)
        time.sleep(0.0005)
        while cuda.cuEventQuery(c_uint64(done)) != 0 and {right}: time.sleep(0.0001)
        """),
    "by luck: a host function runs": by_luck("""
        kept.append(ctypes.CFUNCTYPE(None, c_void_p)(lambda _: ran.append(1)))
        function = ctypes.cast(kept[-1], c_void_p).value
        assert cuda.cuLaunchHostFunc(*map(c_uint64, (a, function, 0))) == 0
        time.sleep(0.0005)
        while len(ran) <= i and {right}: time.sleep(0.0001)
        """),
    "by luck: another thread has waited, which runs no Python": by_luck("""
        thread = c_uint64()
        wait = ctypes.cast(cuda.cuStreamSynchronize, c_void_p)
        assert posix.pthread_create(byref(thread), None, wait, c_void_p(a)) == 0
        time.sleep(0.0005)
        if {right}: posix.pthread_join(thread, None)
        """),
    # PyTorch's reductions have room for a second result that nobody fills.
    "a word that a kernel does not use": """
        a, b, x, y, h = stream(), stream(), word(), word(), pinned()
        launch("fill", a, x, 7)  # late
        if {right}: order(a, b)
        launch("largest", b, y, x, h, 1)  # early
        """,
    "a copy of an array, for which the host waits": f"""
        {TWO}
        launch("fill", a, x, 7)  # late
        order(a, LEGACY)
        if {{right}}: assert cuda.cuMemcpyAtoH_v2(*map(c_uint64, (0, 1, 0, 8))) == 0
        launch("copy", b, y, x)  # early
        """,
}


@pytest.mark.parametrize("name", TWINS)
def test_the_pair_is_proven_and_of_the_right_twin_nothing_is_said(name, run):
    racy, right = (TWINS[name].format(right=right) for right in (0, 1))
    status, found = run(racy)
    assert (status, named(found, "proven")) == (1, {tuple(marked(racy))}), found
    status, found = run(right)
    assert (status, found["pairs"]) == (0, []), found


def test_two_readers_are_no_race(run):
    status, found = run(
        """
        a, b, c, x, y, z = stream(), stream(), stream(), word(), word(), word()
        launch("fill", a, x, 7)
        order(a, b)
        order(a, c)
        launch("copy", b, y, x)
        launch("copy", c, z, x)
        """
    )
    assert (status, named(found, "proven", "race")) == (0, set()), found


def test_an_event_is_over_when_the_host_has_waited(run):
    status, found = run(
        f"""
        {TWO}
        for i in range(20):
            launch("fill", a, x, i, pause=0)
            one, other = event(), event()
            call("cuEventRecord", one, a)
            call("cuEventRecord", other, a)
            call("cuEventSynchronize", other)
            call("cuEventQuery", c_uint64(one))
        launch("copy", b, y, x)
        """
    )
    assert (status, found["pairs"], found["functions"]["cuEventQuery"]) == (0, [], 20), found


def test_a_write_of_what_is_there_anyway_is_a_suspect(run):
    """It changes no byte when it runs in order, so it is not seen to write."""
    text = """
        a, b, x, y = stream(), stream(), word(), word()
        launch("fill", a, x, 7)
        call("cuStreamSynchronize", a)
        launch("fill", b, y, 3)
        launch("copy", b, x, y)
        {order}
        launch("copy", a, y, x)
        call("cuCtxSynchronize")
        print(peek(y))
        """
    status, found = run(text.format(order="pass"))
    assert (status, bool(named(found, "proven"))) == (1, True), found
    same = text.replace('launch("fill", b, y, 3)', 'launch("fill", b, y, 7)')
    status, found = run(same.format(order="pass"))
    assert (status, {one["verdict"] for one in found["pairs"]}) == (0, {"suspect"}), found


# As PyTorch's allocator: from one allocation, or by the driver's pool.
BLOCKS = """
    import os, sys
    by_driver = "backend:cudaMallocAsync" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    a, b, y, whole, x = stream(), stream(), word(), word(), c_uint64()
    if by_driver: assert cuda.cuMemAllocAsync(byref(x), c_uint64(64), c_uint64(a)) == 0
    else: x.value = whole
    launch("fill", a, x.value, 1)
    order(a, b)
    launch("copy", b, y, x.value)
    if {right}: order(b, a)
    if by_driver: assert cuda.cuMemFreeAsync(x, c_uint64(a)) == 0
    """


def test_with_blocks_in_the_order_of_streams_a_free_that_comes_too_early_is_seen(run):
    racy, right = (BLOCKS.format(right=right) for right in (0, 1))
    assert run(racy)[0] == 0
    status, found = run(racy, "--stream-ordered")
    (pair,) = found["pairs"]
    assert (status, pair["verdict"], pair["second"]["kernel"]) == (1, "proven", "cuMemFreeAsync")
    assert run(right, "--stream-ordered")[0] == 0


def test_in_the_order_of_streams_cupy_gets_its_allocator_and_a_sitecustomize_runs(
    run, tmp_path, monkeypatch
):
    """Both modules stand in for the real ones."""
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['ITS_OWN'] = '1'")
    (tmp_path / "cupy.py").write_text(
        "class cuda:\n"
        "    class MemoryAsyncPool: malloc = 'by the driver'\n"
        "    def set_allocator(one): cuda.allocator = one\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{DRIVER}:{tmp_path}")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    status, found = run(
        """
        import cupy, os, sys
        launch("fill", stream(), word(), 1)
        assert cupy.cuda.allocator == "by the driver" and os.environ["ITS_OWN"] == "1"
        conf = os.environ["PYTORCH_CUDA_ALLOC_CONF"]
        assert conf == "max_split_size_mb:64,backend:cudaMallocAsync", conf
        assert os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] == "cuda_async"
        """,
        "--stream-ordered",
    )
    assert (status, "the program ended" in found["conclusion"]) == (0, False), found


def test_only_pairs_with_the_line_are_told(run):
    text = RACY["a write and a read on two streams"].format(**NO_WAITS)
    assert run(text, "--match", r"program\.py:5\b")[0] == 1
    status, found = run(text, "--match", r"program\.py:1\b")
    assert (status, found["pairs"]) == (0, [])


def test_a_launch_that_ends_the_process_when_it_is_made_again_is_left_alone(run):
    """It follows a pointer that it reads: with other bytes it goes anywhere."""
    text = f"""
        {TWO}
        p, q = word(), word()
        c_uint64.from_address(q).value = x
        c_uint64.from_address(p).value = y
        launch("copy", a, p, q)
        launch("follow", b, y, p)
        call("cuCtxSynchronize")
        launch("fill", a, x, 5)
        launch("copy", b, y, x)
        """
    status, found = run(text)
    assert (status, len(found["seconds"])) == (1, 3), found
    lines = {'launch("fill", a, x, 5)', 'launch("copy", b, y, x)'}
    assert [set(one) for one in named(found, "proven")] == [lines], found
    assert [set(one) for one in named(found, "suspect")] == [
        {'launch("copy", a, p, q)', 'launch("follow", b, y, p)'}
    ], found


def test_confirming_shows_a_suspect_in_what_is_printed(run):
    """Another process may have the memory, so its bytes are not compared."""
    text = f"""
        {TWO}
        handle = (c_uint64 * 8)()
        assert cuda.cuIpcGetMemHandle(handle, c_uint64(x)) == 0
        launch("fill", a, x, 7)
        {{wait}}
        launch("copy", b, y, x)
        print("VALUE", read(y, b))
        """
    racy = text.format(wait="pass")
    status, found = run(racy)
    assert (status, [one["verdict"] for one in found["pairs"]]) == (0, ["suspect"]), found
    status, found = run(racy, "--confirm")
    assert (status, [one["verdict"] for one in found["pairs"]]) == (1, ["race"]), found
    status, found = run(text.format(wait="order(a, b)"), "--confirm")
    assert (status, found["pairs"]) == (0, []), found
    status, found = run(f"{racy}print(time.time())", "--confirm")
    assert status == 0, found
    assert "two serial runs differ in line 2" in found["conclusion"]


@pytest.mark.usefixtures("run")
def test_the_text_has_both_sides_and_the_hand_over(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        f"from soft import *\n{TWO}\n"
        "cupy = type('cupy', (), {'asarray': staticmethod(lambda x: x)})\n"
        "launch('fill', a, x, 7)  # the write\n"
        "z = cupy.asarray(x)\n"
        "launch('copy', b, y, z)  # the read\n"
    )
    command = [sys.executable, "-m", "cai_bridge", "races", "--", sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1, done.stderr
    text = done.stdout.splitlines()
    assert text[0] == "proven: nothing orders these two"
    assert text[1].startswith("  first:  fill on non-blocking stream 0x")
    assert re.search(r"0x[0-9a-f]+, made at \S+/soft\.py:\d+, writes there$", text[1])
    assert f"    {program}:4 in <module>: launch('fill', a, x, 7)  # the write" in done.stdout
    assert f"    {program}:6 in <module>: launch('copy', b, y, z)  # the read" in done.stdout
    assert "  between them: z = cupy.asarray(x)" in text
    assert "cai_bridge.convert(x, library)" in done.stdout
    assert text[-1].startswith("1 race; 2 operations with 3 addresses seen; not seen: ")


def test_threads_that_keep_to_their_own_are_not_accused_and_others_are_suspects_at_least(run):
    """In the second run one thread's launches wait for another's, as a launch is compared alone."""
    text = """
        import threading
        weights, words = word(), [word() for _ in range(4)]
        launch("fill", PER_THREAD, weights, 7)
        call("cuStreamSynchronize", PER_THREAD)
        def work(number):
            own, other = stream(), stream()
            for i in range(20):
                launch("fill", own, words[number], i, pause=0)
                order(own, other)
                launch("add", other, words[number if {right} else 0], weights, pause=0)
                order(other, own)
                call("cuStreamSynchronize", own)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for one in threads: one.start()
        for one in threads: one.join()
        """
    status, found = run(text.format(right=1))
    assert (status, named(found, "proven", "race")) == (0, set()), found
    # Threads run in another order in the second run, so that it may look at other launches.
    assert run(text.format(right=0))[1]["pairs"]


REPORTS = Path(__file__).parents[2] / "docs" / "reports"
RACES = sorted((REPORTS / "races").glob("*.md"))


@pytest.mark.parametrize("page", RACES, ids=lambda page: page.stem)
def test_a_reported_race_is_listed_and_has_its_program_and_two_of_its_lines(page):
    assert f"(races/{page.name})" in (REPORTS / "README.md").read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    path = page.with_name(page.stem.replace("-", "_") + ".py")
    assert program == path.read_text(encoding="utf-8")
    named = re.findall(rf"(?m)^ +{path.name}:(\d+) in <module>: (.+)$", printed)
    assert len(named) == 2
    assert printed.startswith("proven: ")
    for number, line in named:
        assert program.splitlines()[int(number) - 1].strip() == line
