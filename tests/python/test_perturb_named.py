"""`cai-bridge perturb`: which two operations are named, and the hand-over between them."""

import re
import subprocess
import textwrap

import pytest
from perturbing import CC, TWO, driver, marked, needs, run, sides, source

__all__ = ["driver", "run"]

pytestmark = needs

# A library that queues work from a thread of its own, as JAX does, and has more to do there: what
# follows a late write in its own thread holds up all who wait for that thread.
OF_A_THREAD = """
    import queue, threading
    b, a, c, v, w, x, y = stream(), stream(), stream(), word(), word(), word(), word()
    for s in (b, a, c):
        launch("fill", s, y, 0)
        call("cuStreamSynchronize", s)
    asked, done = queue.SimpleQueue(), queue.SimpleQueue()
    def work():
        for i in iter(asked.get, 0):
            launch("fill", a, w, i)  # of a thread
            done.put(launch("fill", a, v, 1))
    thread = threading.Thread(target=work)
    thread.start()
    for i in range(1, 4):
        asked.put(i)
        done.get()
        if COPIED:
            order(a, c)
            launch("copy", c, x, w)  # of the copy
        z = x if COPIED else w
        launch("copy", b, y, z)  # early
        print(read(y, b))
        order(b, a)
        order(b, c)
    asked.put(0)
    thread.join()
    """

# Programs, with marks at the late operation and at the early one.
CHAINS = {
    "work before it on the same stream": """
        a, b, w, x, y = stream(), stream(), word(), word(), word()
        for i in range(1, 4):
            launch("fill", a, w, i)
            launch("add", a, w, w)
            launch("copy", a, x, w)  # late
            launch("copy", b, y, x)  # early
            print(read(y, b))
            order(b, a)
        """,
    "a read behind others, and the next write": f"""
        {TWO}
        v, w = word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)
            order(a, b)
            launch("copy", b, w, v)
            launch("copy", b, y, x)  # late
            launch("fill", a, x, 99)  # early
            print(read(y, b))
            order(b, a)
        """,
    "right work before it": """
        a, b, x, y, z = stream(), stream(), word(), word(), word()
        for i in range(1, 10):
            launch("fill", a, x, i)
            order(a, b)
            launch("add", b, y, x)
            order(b, a)
        launch("fill", a, z, 500)  # late
        launch("add", b, y, z)  # early
        print(read(y, b))
        """,
    "an event that is recorded too early, behind other work": """
        a, b, w, x, y, e = stream(), stream(), word(), word(), word(), event()
        for i in range(1, 9):
            launch("fill", a, w, i, pause=0)
            call("cuEventRecord", e, a)
            launch("fill", a, x, i, pause=0)  # late
            call("cuStreamWaitEvent", b, e, 0)
            launch("copy", b, y, x)  # early
            print(read(y, b))
            order(b, a)
        """,
    "a host that reads at once": """
        a, x, h = stream(), word(), pinned()
        out = []
        for i in range(1, 5):
            launch("fill", a, x, i)
            call("cuMemcpyAsync", h, x, 8, a)  # late
            out.append(peek(h))
        call("cuCtxSynchronize")
        print(out)
        """,
    "a host that reads at once, behind a stream that waits as it should": """
        a, c, x, h, z = stream(), stream(), word(), pinned(), word()
        for s in (a, c):
            launch("fill", s, z, 0)
            call("cuStreamSynchronize", s)
        out = []
        for i in range(1, 5):
            launch("fill", c, x, i)
            order(c, a)
            call("cuMemcpyAsync", h, x, 8, a)  # late
            time.sleep(0.01)
            out.append(peek(h))
            call("cuCtxSynchronize")
        print(out)
        """,
    "a host that waits for an event before the copy": """
        a, x, h, e = stream(), word(), pinned(), event()
        out = []
        for i in range(1, 5):
            launch("fill", a, x, i)
            call("cuEventRecord", e, a)
            call("cuMemcpyAsync", h, x, 8, a)  # late
            call("cuEventSynchronize", e)
            out.append(peek(h))
        call("cuCtxSynchronize")
        print(out)
        """,
    "a stream that waits as it should for the late one": """
        c, b, a, x, y, z = stream(), stream(), stream(), word(), word(), word()
        launch("fill", b, y, 0)
        call("cuStreamSynchronize", b)
        for i in range(1, 4):
            launch("fill", c, x, i)
            order(c, b)
            launch("copy", b, y, x)  # late
            launch("copy", a, z, y)  # early
            print(read(z, a))
            order(a, c)
            order(a, b)
        """,
    # While it is named no wait opens a gate: under seed 1 the host waits until all are over.
    "a wait of the host hides it under one seed": """
        c, b, a, x, y, z = stream(), stream(), stream(), word(), word(), word()
        for s in (c, b, a):
            launch("fill", s, z, 0)
            call("cuStreamSynchronize", s)
        for i in range(1, 4):
            launch("fill", c, z, i)
            launch("fill", a, x, i)  # late
            call("cuStreamSynchronize", c)
            time.sleep(0.008)
            launch("copy", b, y, x)  # early
            print(read(y, b))
            order(b, a)
        """,
    "the write of another thread": (
        OF_A_THREAD.replace("COPIED", "False").replace("# of a thread", "# late")
    ),
    "a copy of the write of another thread": (
        OF_A_THREAD.replace("COPIED", "True").replace("# of the copy", "# late")
    ),
    # While it is named no gate opens before its time, and what is late alone is later.
    "a run that is longer as its delays are": f"""
        {TWO}
        for i in range(1, 4):
            launch("fill", a, x, i)  # late
            launch("copy", b, y, x)  # early
            print(read(y, b))
            order(b, a)
            call("cuStreamSynchronize", a)
        """,
    "a function of the program's own called _f": f"""
        {TWO}
        def _f(i):
            return i
        for i in range(1, 4):
            launch("fill", a, x, _f(i))  # late
            launch("copy", b, y, x + 0 * _f(i))  # early
            print(read(y, b))
            order(b, a)
        """,
}
OPTIONS = {
    "a wait of the host hides it under one seed": ("--seeds", "4"),
    "a run that is longer as its delays are": ("--delay", "0.08", "--timeout", "0.7"),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("name", CHAINS)
def test_of_all_that_is_late_with_it_the_last_that_matters_is_named(name, run):
    _, found = run(CHAINS[name], *OPTIONS.get(name, ()), named=True)
    assert sides(found) == marked(CHAINS[name]), found["race"]


def test_the_early_one_may_lie_between_two_threads_that_are_late(run):
    """What is printed is wrong if both writes are late: by number the reader is between theirs."""
    _, found = run(
        """
        import concurrent.futures
        a, b, c = stream(), stream(), stream()
        v, w, x, y = word(), word(), word(), word()
        reader, writer = (concurrent.futures.ThreadPoolExecutor(1) for _ in range(2))
        launch("fill", a, v, 0)
        reader.submit(launch, "fill", b, x, 0).result()
        writer.submit(launch, "fill", c, y, 0).result()
        call("cuCtxSynchronize")
        def look():
            launch("copy", b, x, v)
            launch("copy", b, y, w)
        def write(i):
            launch("fill", c, w, i)
        for i in range(1, 4):
            launch("fill", a, v, i)
            writer.submit(write, i).result()
            reader.submit(look).result()
            print(max(read(x, b), read(y, b)))
            order(b, a)
            order(b, c)
        """,
        named=True,
    )
    late, early = sides(found)
    assert late in {'launch("fill", a, v, i)', 'launch("fill", c, w, i)'}, found["race"]
    assert early in {'launch("copy", b, x, v)', 'launch("copy", b, y, w)'}, found["race"]


def test_operations_of_several_processes_that_have_one_number_are_all_told(run):
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


ITS_OWN_THREAD = """
    #include <pthread.h>
    typedef int launcher(unsigned long, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, unsigned long, void **, void **);
    struct asked { launcher *launch; unsigned long kernel, stream; void **values; };
    static void *queue(void *of) {
        struct asked *one = of;
        one->launch(one->kernel, 1, 1, 1, 1, 1, 1, 0, one->stream, one->values, 0);
        return 0;
    }
    void on_its_own_thread(launcher *launch, unsigned long kernel, unsigned long stream,
                           void **values) {
        struct asked one = {launch, kernel, stream, values};
        pthread_t thread;
        pthread_create(&thread, 0, queue, &one);
        pthread_join(thread, 0);
    }
    """


def test_a_thread_that_runs_no_python_is_not_asked_while_who_waits_for_it_has_pythons_lock(
    run, tmp_path
):
    source, library = tmp_path / "thread.c", tmp_path / "thread.so"
    source.write_text(ITS_OWN_THREAD)
    command = [str(CC), "-shared", "-fPIC", "-pthread", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    _, found = run(
        f"""
        {TWO}
        fill = made("cuModuleGetFunction", 0, b"fill")
        library = ctypes.PyDLL({str(library)!r})  # keeps Python's lock
        for i in range(1, 4):
            values = [c_uint64(x), c_uint64(i)]
            addresses = (c_void_p * 2)(*[ctypes.addressof(one) for one in values])
            library.on_its_own_thread(cuda.cuLaunchKernel, c_uint64(fill), c_uint64(a), addresses)
            time.sleep(0.003)
            launch("copy", b, y, x)
            print(read(y, b))
            order(b, a)
        """,
        named=True,
    )
    assert found["race"], found
    assert found["race"]["late"]["kernel"] == "fill"
    assert sides(found) == [None, 'launch("copy", b, y, x)'], found["race"]


def test_a_stream_is_named_by_its_kind_its_handle_and_the_line_that_made_it(run):
    _, found = run(
        """
        x, y = word(), word()
        a = c_uint64()
        assert cuda.cuStreamCreate(byref(a), c_uint(0)) == 0
        a, c = a.value, stream()
        for i in range(1, 4):
            launch("fill", c, x, i)
            launch("copy", a, y, x)
            print(read(y, a))
            call("cuCtxSynchronize")
        """,
        named=True,
    )
    race = found["race"]
    made = r"blocking stream 0x[0-9a-f]+, made at \S+/{}:\d+"
    assert re.fullmatch("non-" + made.format(r"soft\.py"), race["late"]["stream_name"]), race
    assert re.fullmatch(made.format(r"program\.py"), race["early"]["stream_name"]), race


TURNS = """
    for i in range(1, 4):
        launch("fill", a, x, i)
        {}
        z = cupy.asarray(x)
        launch("copy", b, y, z)
        print(read(y, b))
        order(b, a)
    """
# What is called between a write and a read, and the hand-over that there is.
BETWEEN = {
    "alone": (TURNS.format("pass"), "z = cupy.asarray(x)"),
    "of JAX": (TURNS.replace("cupy.asarray", "jnp.array").format("pass"), "z = jnp.array(x)"),
    "in a function that neither is in": (
        """
        def write(i):
            launch("fill", a, x, i)
        def never_called(z):
            return cupy.asarray(z)
        def look(z):
            launch("copy", b, y, z)
        for i in range(1, 4):
            write(i)
            look(x)
            print(read(y, b))
            order(b, a)
        """,
        None,
    ),
    "in the function that called both": (
        """
        def look(z):
            launch("copy", b, y, z)
        def write(i):
            launch("fill", a, x, i)
        for i in range(1, 4):
            write(i)
            # not cupy.asarray(y)
            z = cupy.asarray(x)
            look(z)
            print(read(y, b))
            order(b, a)
        """,
        "z = cupy.asarray(x)",
    ),
    "beside one of values of the host's": (
        TURNS.format("labels = torch.as_tensor([1, 2, 3])"),
        "z = cupy.asarray(x)",
    ),
    "one of two": (
        TURNS.format("w = torch.as_tensor(y)"),
        "w = torch.as_tensor(y), or z = cupy.asarray(x)",
    ),
    "before the write, in a loop whose next turn reads": (
        """
        for i in range(1, 4):
            launch("copy", b, y, x)
            print(read(y, b))
            order(b, a)
            v = cupy.asarray(y)
            launch("fill", a, x, i)
        """,
        None,
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_a_hand_over_is_between_them_in_the_function_that_called_both(name, run):
    text, expected = BETWEEN[name]
    own = (
        "class cupy: asarray = as_tensor = array = staticmethod(lambda x: x)\ntorch = jnp = cupy\n"
    )
    _, found = run(f"{own}{TWO}\n{textwrap.dedent(text)}", named=True)
    said = re.match(r"between them: (.*)", found["race"]["advice"])
    assert (said and said[1]) == expected, found["race"]
    assert expected is None or "handed over by CAI" in found["race"]["advice"]
