"""`cai-bridge perturb`: gates open in time, hang no program and spoil no capture."""

import pytest
from perturbing import driver, needs, run, seeds

__all__ = ["driver", "run"]

pytestmark = needs


def test_a_gate_opens_when_its_time_is_up_though_the_host_never_waits_for_it(run):
    status, found = run(
        """
        import time
        a, h = stream(), pinned()
        launch("fill", a, h, 1)
        ends = time.monotonic() + 20
        while not peek(h) and time.monotonic() < ends:
            time.sleep(0.001)
        print(peek(h), cuda.soft_count(1) < 500_000_000)
        """
    )
    assert status == 0, found
    assert [one["opened"] for one in seeds(found)] == [0, 0]
    assert [one["gates"] for one in seeds(found)] == [0, 1]


def test_a_host_that_waits_opens_the_gate_at_once(run):
    text = (
        "a, x = stream(), word()\nfor i in range(20):\n launch('fill', a, x, i)\n print(read(x, a))"
    )
    status, found = run(text, "--delay", "5")
    assert status == 0, found
    assert seeds(found)[1]["opened"] == 20
    assert seeds(found)[1]["seconds"] < 20


def test_before_a_gate_opens_all_that_it_does_not_hold_up_runs(run):
    text = """
        a, b, x, y = stream(), stream(), word(), word()
        launch("fill", a, x, 1)
        launch("spin", b, 20_000)  # microseconds
        launch("copy", b, y, x)
        call("cuCtxSynchronize")
        print(read(y, b))
        """
    status, found = run(text, "--delay", "5")
    assert status == 1, found


def test_a_function_of_the_hosts_that_needs_pythons_lock_does_not_hang_the_program(run):
    status, found = run(
        """
        import ctypes
        seen, a, x = [], stream(), word()
        call_back = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: seen.append(1))
        launch("fill", a, x, 1)
        locked = ctypes.PyDLL("libcuda.so.1")  # keeps Python's lock, as some libraries do
        locked.cuLaunchHostFunc(c_uint64(a), call_back, None)
        call("cuStreamSynchronize", a)
        print(seen)
        """,
        "--timeout",
        "20",
    )
    assert status == 0, found


def test_a_kernel_that_waits_for_the_host_does_not_hang_the_program(run):
    """After a second of waiting the reference orders what comes next on the device."""
    status, found = run(
        """
        import ctypes
        a, b, x, y, flag = stream(), stream(), word(), word(), pinned()
        for step in range(1, 3):
            # It ends when the flag is as high as the step, or after a minute.
            launch("gate", a, flag, step, 1 << 62, 60_000_000_000)
            launch("fill", a, x, step)
            {wait}
            launch("copy", b, y, x)
            ctypes.c_uint64.from_address(flag).value = step
            print(read(y, b))
        """.format(wait="order(a, b)"),
        "--timeout",
        "20",
    )
    assert status == 0, found
    assert found["runs"][0]["seconds"] < 10, found


def test_a_capture_is_left_alone(run):
    status, found = run(
        """
        a, b, x, y = stream(), stream(), word(), word()
        launch("fill", b, y, 1)
        call("cuStreamBeginCapture_v2", a, 0)
        for i in range(20):
            launch("fill", a, x, i)
            launch("fill", b, y, i)
            read(y, b)
        ended(a)
        print(cuda.soft_count(2))
        """
    )
    assert status == 0, found
    assert all(one["captured"] == 20 for one in found["runs"])
    # A stream on which the program only captures needs no seed.
    assert all(one["streams"] == 1 for one in found["runs"])


BESIDE = """
    import threading
    for mode in (0, 1, 2):
        for flags in (0, NON_BLOCKING):
            for in_a_thread in (False, True):
                c, a, b, x, y, z = stream(flags), stream(), stream(0), word(), word(), word()
                call("cuStreamBeginCapture_v2", c, mode)
                launch("fill", c, x, 5)
                def beside():
                    launch("spin", a, 20_000)  # microseconds
                    launch("fill", a, y, 7)
                    {order}
                    launch("copy", b, z, y)
                if in_a_thread:
                    thread = threading.Thread(target=beside)
                    thread.start()
                    thread.join()
                else:
                    beside()
                graph = ended(c)
                {host}
                print(mode, flags, in_a_thread, peek(z))
                call("cuCtxSynchronize")
                call("cuGraphLaunch", graph, c)
                print(read(x, c))
    assert not cuda.soft_count(4)
    """


@pytest.mark.parametrize("racy", [False, True])
def test_beside_a_capture_in_any_mode_the_host_does_not_wait(run, racy):
    right = {"order": "order(a, b)", "host": 'call("cuStreamSynchronize", b)'}
    none = dict.fromkeys(right, "pass")
    status, found = run(BESIDE.format(**(none if racy else right)), "--seeds", "2")
    assert status == racy, found
    if racy:
        # In the reference each operation waits for the one before, and the capture's end for all.
        assert "False 0' against '0 0 False 7'" in found["conclusion"]


# As torch.cuda.graph captures: on a stream of its own, with an allocator that asks for the capture
# and allocates in the relaxed mode, a backward pass in a thread, and a fork that joins.
TORCHS = """
    import threading
    main, own, fork, x, y = stream(), stream({flags}), stream(), word(), word()
    call("cuThreadExchangeStreamCaptureMode", byref(c_uint(0)))
    launch("fill", own, x, 1)
    order(own, main)
    call("cuCtxSynchronize")
    call("cuStreamBeginCapture_v2", own, {mode})
    relaxed, capturing = c_uint(2), c_uint()
    call("cuThreadExchangeStreamCaptureMode", byref(relaxed))
    call("cuStreamIsCapturing", c_uint64(own), byref(capturing))
    assert capturing.value == 1
    z = word()
    call("cuThreadExchangeStreamCaptureMode", byref(relaxed))
    launch("copy", own, z, x)
    backward = threading.Thread(target=launch, args=("add", own, y, z))
    backward.start()
    backward.join()
    order(own, fork)
    launch("add", fork, y, z)
    order(fork, own)
    launch("copy", own, z, y)
    graph = ended(own)
    for i in range(3):
        launch("fill", main, x, i + 2)
        {order}
        call("cuGraphLaunch", graph, own)
        order(own, main)
        print(read(z, main))
    assert not cuda.soft_count(2)
    """


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("flags", [0, 1])
def test_a_program_captures_as_torch_does(run, mode, flags):
    text = TORCHS.format(mode=mode, flags=flags, order="order(main, own)")
    status, found = run(text, "--seeds", "2")
    assert status == 0, found
    assert {one["captured"] for one in found["runs"]} == {4}, found
    racy = TORCHS.format(mode=mode, flags=flags, order="pass")
    assert run(racy, "--seeds", "2")[0] == 1
