"""`share` and `open_shared`: memory of one process in another, in order, while it lasts.

Each process has a simulated device; what one waits for, the other runs. A peer's exit fails where
its device has reports: work on memory that is freed, or freed while another process has it open.
"""

import os
import re
import subprocess
import sys
import time

import pytest
from sharing import Peer
from test_distributed_page import BLOCKS

from cai_bridge import DriverError, _core

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets and pidfd")


@pytest.fixture(scope="module")
def lasting():
    with Peer(2) as sender, Peer() as receiver:
        yield sender, receiver


@pytest.fixture
def pair(lasting):
    yield lasting
    sender, receiver = lasting
    receiver("for name in ('v', 'w', 'seen'): globals().pop(name, None)")
    receiver("gc.collect()")
    sender("for name in ('x', 'y'): globals().pop(name, None)")
    sender("for one in cb.shares(): cb.cancel(one.handle)")
    assert sender("is_over()")


def order_there(sender, receiver):
    """What is pending on the array comes before the receiver's work; nobody waits for it."""
    handle = sender("_, h = share()") or sender("h")
    receiver(f"v = cb.open_shared({handle!r}); seen = read(v)")
    assert sender("cuda.pending") > 0, "the sender's host waited"
    assert receiver("cuda.pending") > 0, "the receiver's host waited"
    receiver("cuda.synchronize()")
    assert receiver("seen.value") == [1.0, 2.0]
    receiver("del v, seen")


def order_back(sender, receiver):
    """What the sender queues after the receiver's end comes after the receiver's work."""
    sender("s = cuda.stream(); x = cuda.array([1.0, 2.0], stream=s); cuda.synchronize()")
    handle = sender("cb.share(x, stream=s)")
    receiver(
        "gate, close = threading.Event(), _share.receiver._End.close\n"
        "_share.receiver._End.close = lambda self: (gate.wait(5), close(self))"
    )
    receiver(f"v = cb.open_shared({handle!r}); seen = read(v); del v; gc.collect()")
    sender("s.fill(x, 9.0); t = threading.Thread(target=cuda.synchronize); t.start()")
    time.sleep(0.03)
    try:
        receiver("cuda.synchronize()")
        assert receiver("seen.value") == [1.0, 2.0]
    finally:
        receiver("gate.set(); _share.receiver._End.close = close; del seen")
        sender("t.join(); del x")


def kept_until_closed(sender, receiver):
    """The owner is kept until the receiver's mapping is closed, which is after its end."""
    handle = sender("_, h = share()") or sender("h")
    receiver(f"v = cb.open_shared({handle!r})")
    assert sender("gc.collect() and 0 or cuda._session.bytes_in_use") == 8
    receiver("gpu = next(iter(_share.gpu.GPUS.values())); gpu.lock.acquire()")
    try:
        receiver("del v")
        time.sleep(0.05)
        assert sender("[one.opened for one in cb.shares()]") == [1]
        assert sender("cuda._session.bytes_in_use") == 8
    finally:
        receiver("gpu.lock.release()")
    assert sender("is_over()")


def token_counts(sender, receiver):
    """Only the handle opens it."""
    handle = sender("_, h = share()") or sender("h")
    forged = handle[:-1] + bytes([handle[-1] ^ 1])
    with pytest.raises(RuntimeError, match="the sender refuses"):
        receiver(f"v = cb.open_shared({forged!r})")


def receivers_count(sender, receiver):
    """It is opened as often as it was shared for, and kept for each."""
    handle = sender("_, h = share(receivers=2)") or sender("h")
    receiver(f"v = cb.open_shared({handle!r}); w = cb.open_shared({handle!r})")
    with pytest.raises(RuntimeError, match="as often as share"):
        receiver(f"cb.open_shared({handle!r})")
    receiver("seen = read(w); del v")
    time.sleep(0.02)
    assert sender("[one.opened for one in cb.shares()]") == [1]
    receiver("cuda.synchronize()")
    assert receiver("seen.value") == [1.0, 2.0]
    receiver("del w, seen")
    assert sender("is_over()")


def kept_by_a_process_that_lives(sender, receiver):
    """A connection that ends gives nothing back before its process ends."""
    handle = sender("_, h = share()") or sender("h")
    receiver(f"v = cb.open_shared({handle!r})")
    receiver(
        "[peer.shutdown(socket.SHUT_RDWR) for peer, _ in list(_share.keeper._loop.opened.values())]"
    )
    time.sleep(0.05)
    assert sender("[one.opened for one in cb.shares()]") == [1]
    receiver.kill()
    assert sender("is_over()")


RULES = {
    rule.__name__: rule
    for rule in (order_there, order_back, kept_until_closed, token_counts, receivers_count)
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_holds(pair, rule):
    RULES[rule](*pair)


def test_a_connection_that_ends_is_not_the_end(survivor):
    kept_by_a_process_that_lives(survivor, Peer())


# Which rule notices it, in whom it is planted, and what is left out there.
MUTANTS = {
    "no wait for the sender's event": (
        *("order_there", 1),
        "real = _share.gpu.Gpu.take_stream\n"
        "class Deaf:\n"
        "    def __init__(self, stream): self.stream = stream\n"
        "    def __getattr__(self, name): return getattr(self.stream, name)\n"
        "    def wait(self, event): pass\n"
        "_share.gpu.Gpu.take_stream = lambda self: Deaf(real(self))",
    ),
    "the sender's host waits": (
        *("order_there", 0),
        "real = _share.share\ncb.share = lambda *a, **k: (real(*a, **k), cuda.synchronize())[0]",
    ),
    "no wait for the receiver's event": (
        *("order_back", 0),
        "_share.keeper.Loop.done = lambda self, lease: None",
    ),
    "released at done": (
        *("kept_until_closed", 0),
        "real = _share.keeper.Loop.done\n"
        "def done(self, lease):\n"
        "    real(self, lease)\n"
        "    self.ended(lease)\n"
        "_share.keeper.Loop.done = done",
    ),
    "the connection's end is the process's": (
        *("kept_by_a_process_that_lives", 0),
        "real = _share.keeper.Loop.hear\n"
        "def hear(self, lease):\n"
        "    real(self, lease)\n"
        "    if lease.is_silent: self.ended(lease)\n"
        "_share.keeper.Loop.hear = hear",
    ),
    "any token": (
        *("token_counts", 0),
        "_share.keeper.hmac.compare_digest = lambda one, other: True",
    ),
    "no count of receivers": (
        *("receivers_count", 0),
        "class Endless(list):\n"
        "    def pop(self): return self[-1]\n"
        "real = _share.keeper.Shared.__init__\n"
        "def init(self, *rest):\n"
        "    real(self, *rest)\n"
        "    self.left = Endless()\n"
        "_share.keeper.Shared.__init__ = init",
    ),
    "one mapping for two, closed by the first": (
        *("receivers_count", 1),
        "real = _share.gpu.Gpu.close\n"
        "def close(self, memory, stream):\n"
        "    self._opened[_share.gpu._key(memory)][1] = 1\n"
        "    real(self, memory, stream)\n"
        "_share.gpu.Gpu.close = close",
    ),
}


def checked(rule, peers):
    """See that a rule holds, and what the devices have to say."""
    {**RULES, "kept_by_a_process_that_lives": kept_by_a_process_that_lives}[rule](*peers)
    for peer in peers:
        peer("gc.collect(); cuda.synchronize(); cuda.check()")


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_notices_its_mutant(mutant):
    rule, where, code = MUTANTS[mutant]
    peers = Peer(), Peer()
    try:
        peers[where](code)
        with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
            checked(rule, peers)
    finally:
        for peer in peers:
            peer.kill()


ARRAYS = {
    "plain": "cuda.array([1.0, 2.0])",
    "a matrix": "cuda.array([[1, 2], [3, 4]], dtype='int16')",
    "Fortran's order": "cuda.array([[1, 2, 3], [4, 5, 6]], strides='F')",
    "backwards": "cuda.array([1.0, 2.0, 3.0], strides=[-4])",
    "an offset": "cuda.array([1.0, 2.0], offset=64)",
    "bfloat16": "cuda.array([1.0, 2.0], dtype='bfloat16')",
    "no elements": "cuda.array(shape=(0, 3))",
    "read-only": "cuda.array([1.0], readonly=True)",
    "by the CUDA Array Interface": "cuda.array([1.0, 2.0], speaks='cai3')",
    "a view": "cb.to_dlpack(cuda.array([1.0, 2.0]))",
    "of the second GPU, copied": "cuda.array([1.0, 2.0], device=0)",
}


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_an_array_arrives_as_it_was(pair, array, copy):
    sender, receiver = pair
    sender(f"x = {array}; v = cb.to_dlpack(x)")
    look = "(v.shape, str(v.typestr), v.readonly, v._dtype_name, cuda.read(v))"
    expected = sender(look)
    handle = sender(f"globals().pop('v').release() or cb.share(x, copy={copy})")
    receiver(f"v = cb.open_shared({handle!r}); seen = read(v); cuda.synchronize()")
    assert receiver(look) == expected


@pytest.mark.parametrize("memory", ["pool", "managed", "pinned"])
def test_copy_shares_what_cannot_be_exported(pair, memory):
    sender, receiver = pair
    sender(f"s = cuda.stream(); x = cuda.array([1.0, 2.0], memory={memory!r}, stream=s)")
    with pytest.raises(RuntimeError, match=r"BufferError: x: got memory .*share\(x, copy=True\)"):
        sender("cb.share(x)")
    handle = sender("cb.share(x, stream=s, copy=True)")
    sender("s.fill(x, 9.0); cuda.synchronize(); del x")
    receiver(f"v = cb.open_shared({handle!r}); seen = read(v); cuda.synchronize()")
    assert receiver("seen.value") == [1.0, 2.0]


def test_what_was_opened_is_shared_as_a_copy_alone(pair):
    sender, receiver = pair
    receiver(f"v = cb.open_shared({sender('share()[1]')!r})")
    with pytest.raises(RuntimeError, match="x: got memory that the driver does not hand on"):
        receiver("cb.share(v)")
    receiver("h = cb.share(v, copy=True); del v")
    sender(f"v = cb.open_shared({receiver('h')!r}); seen = read(v); cuda.synchronize()")
    assert sender("seen.value") == [1.0, 2.0]
    sender("del v, seen")
    assert receiver("is_over()")


def test_readonly_is_the_receivers(pair):
    sender, receiver = pair
    handle = sender("share(readonly=True)[1]")
    assert receiver(f"cb.open_shared({handle!r}).readonly")


def test_it_opens_where_it_was_shared(pair):
    sender, _ = pair
    sender("s, h = share(); v = cb.open_shared(h); seen = read(v); cuda.synchronize()")
    assert sender("seen.value") == [1.0, 2.0]
    assert sender("cb.shares()") == []
    sender("del v, seen, s")


def test_the_pickling_refusal_names_share(pair):
    with pytest.raises(RuntimeError, match=r"cannot pickle a CaiView.*cai_bridge\.share"):
        pair[0]("import pickle; pickle.dumps(cb.to_cai(cuda.array([1.0])))")


def test_the_pages_code_runs(pair):
    sender, receiver = pair
    (code,) = [block for block in BLOCKS if "open_shared" in block]
    for peer in pair:
        peer("import cai_bridge; convert = lambda view, library: cb.convert(view, 'numpy')")
        peer(code)
    sender("import types; out = []; queue = types.SimpleNamespace(put=out.append)")
    sender("s = cuda.stream(); x = cuda.array([1.0, 2.0], stream=s); sender(x, queue)")
    receiver(f"import types; queue = types.SimpleNamespace(get=lambda: {sender('out[0]')!r})")
    assert receiver("receiver(queue)") == 1.5


REFUSED = {
    "receivers=0": "ValueError: receivers: got 0; allowed: 1 or more",
    "receivers=True": "TypeError: receivers: got True; allowed: an integer",
    "copy=1.5": "TypeError: copy: got 1.5; allowed: None, True, False",
}


@pytest.mark.parametrize("options", REFUSED)
def test_arguments_that_do_not_fit_are_refused(pair, options):
    with pytest.raises(RuntimeError, match=REFUSED[options]):
        pair[0](f"cb.share(cuda.array([1.0]), {options})")


@pytest.mark.parametrize(
    ("handle", "refusal"),
    [
        ("'text'", "TypeError: handle: got str; allowed: the bytes of share"),
        ("b'other'", "ValueError: handle: got 5 bytes of another kind"),
        (
            "_share.wire.MAGIC + bytes(32)",
            "BufferError: handle: got that of a process that has ended",
        ),
    ],
)
def test_other_handles_are_refused(pair, handle, refusal):
    with pytest.raises(RuntimeError, match=refusal):
        pair[1](f"cb.open_shared({handle})")


def test_a_gpu_that_is_not_visible_is_refused(pair):
    sender, receiver = pair
    handle = sender("cb.share(cuda.array([1.0], device=1))")
    with pytest.raises(RuntimeError, match=r"which this process does not see; .*CUDA_VISIBLE_DEV"):
        receiver(f"cb.open_shared({handle!r})")
    assert sender("settled(lambda: [one.waiting for one in cb.shares()] == [1])"), "not opened yet"


def test_a_capture_is_refused_and_goes_on(pair):
    sender, _ = pair
    sender(
        "s = cuda.stream(); x = cuda.array([1.0], stream=s, speaks='exchange'); said = []\n"
        "cuda.synchronize()\n"
        "with cuda.current_stream(s), cuda.capture(s) as graph:\n"
        "    try:\n"
        "        cb.share(x)\n"
        "    except cb.DriverError as error:\n"
        "        said.append(str(error))\n"
        "    s.fill(x, 2.0)\n"
        "cuda.synchronize(); del graph"
    )
    assert "graph capture: got an array that is captured" in sender("said[0]")
    assert sender("cb.shares()") == []


@pytest.mark.parametrize("call", ["record", "wait"])
def test_an_event_of_a_context_that_was_reset_is_refused(call, cuda):
    gpu = _core._IpcDevice(0)
    event = gpu.event()
    cuda.reset_device(0)
    with pytest.raises(DriverError, match="CONTEXT_IS_DESTROYED"):
        getattr(gpu.stream(), call)(event)


def test_a_fork_is_refused(pair):
    sender, receiver = pair
    handle = sender("share()[1]")
    for peer, call in ((sender, "share()"), (receiver, f"cb.open_shared({handle!r})")):
        code = peer(
            "def forked(call):\n"
            "    child = os.fork()\n"
            "    if not child:\n"
            "        try:\n"
            "            call()\n"
            "        except cb.DriverError:\n"
            "            os._exit(7)\n"
            "        os._exit(0)\n"
            "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
        ) or peer(f"forked(lambda: {call})")
        assert code == 7
    assert sender("[one.waiting for one in cb.shares()]") == [1]


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_another_user_is_refused(pair):
    sender, _ = pair
    handle = sender("share()[1]")
    with Peer() as stranger:
        stranger("os.setuid(65534)")
        with pytest.raises(RuntimeError, match="handle: got that of another user"):
            stranger(f"cb.open_shared({handle!r})")
        # Who does not look himself is not answered.
        with pytest.raises(RuntimeError, match="BufferError"):
            stranger(
                "_share.receiver.credentials = lambda peer: (0, os.getuid())\n"
                f"cb.open_shared({handle!r})"
            )
        stranger.kill()
    assert sender("[one.waiting for one in cb.shares()]") == [1]


ASKED = (
    "peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "address, token = _share.wire.parsed(h)\n"
    "peer.connect(_share.wire.address_of(address))"
)
STEPS = {
    "connected": (ASKED, 1),
    "half a token": (ASKED + "\npeer.send(token[:4])", 1),
    "asked": (ASKED + "\npeer.send(token)", 0),
    "answered": (ASKED + "\npeer.send(token); peer.recv(1 << 16)", 0),
    "opened": ("v = cb.open_shared(h)", 0),
    "at work": ("v = cb.open_shared(h); seen = read(v)", 0),
    "done": (
        "_share.gpu.Gpu.close = lambda self, *rest: time.sleep(60)\n"
        "v = cb.open_shared(h); seen = read(v); del v; gc.collect(); time.sleep(0.05)",
        0,
    ),
    "failed": (
        "cuda.fail('cuIpcOpenMemHandle')\n"
        "try:\n"
        "    cb.open_shared(h)\n"
        "except cb.DriverError:\n"
        "    pass",
        1,
    ),
}


@pytest.fixture(scope="module")
def survivor():
    with Peer() as sender:
        yield sender


@pytest.mark.parametrize("step", STEPS)
def test_a_receiver_that_is_killed_gives_the_memory_back(survivor, step):
    code, waiting = STEPS[step]
    handle = survivor("s, h = share()") or survivor("h")
    receiver = Peer()
    receiver(f"h = {handle!r}")
    receiver(code)
    if not waiting:
        assert survivor("settled(lambda: cb.shares()[0].opened)"), "killed before it was heard"
    receiver.kill()
    if waiting:
        assert survivor("settled(lambda: cb.shares() and not cb.shares()[0].opened)")
        assert survivor("[(one.waiting, one.opened) for one in cb.shares()]") == [(1, 0)]
        survivor("cb.cancel(h)")
    assert survivor("is_over()")
    assert survivor("cuda.synchronize()") is None, "no wait for what will never come"


def test_a_receiver_may_be_gone_before_it_is_heard(survivor):
    handle = survivor("s, h = share()") or survivor("h")
    survivor(
        "def gone(pid): raise ProcessLookupError(3, 'No such process')\n"
        "real, os.pidfd_open = os.pidfd_open, gone"
    )
    receiver = Peer()
    try:
        receiver(f"h = {handle!r}\n{STEPS['asked'][0]}")
        assert survivor("settled(lambda: cb.shares()[0].opened)")
    finally:
        receiver.kill()
        survivor("os.pidfd_open = real")
    assert survivor("is_over()")


def test_a_receivers_forked_child_keeps_the_memory(survivor):
    """A GPU context goes with the last copy of its files, which a child has."""
    handle = survivor("s, h = share()") or survivor("h")
    receiver = Peer()
    receiver(f"v = cb.open_shared({handle!r})")
    child = receiver("os.fork() or time.sleep(60) or os._exit(0)")
    receiver.kill()
    time.sleep(0.05)
    assert survivor("[one.opened for one in cb.shares()]") == [1]
    os.kill(child, 9)
    assert survivor("is_over()")


@pytest.mark.parametrize("forks", [False, True])
def test_a_sender_that_is_killed_ends_the_view(forks):
    sender = Peer()
    with Peer() as receiver:
        handle = sender("s, h = share(receivers=2)") or sender("h")
        receiver(f"v = cb.open_shared({handle!r}); seen = read(v)")
        child = sender("os.fork() or time.sleep(60) or os._exit(0)") if forks else None
        sender.kill()
        try:
            said = receiver(
                "def refused():\n"
                "    try:\n"
                "        cb.to_cai(v)\n"
                "    except BufferError as error:\n"
                "        return str(error)"
            ) or receiver("settled(refused)")
            assert "released" in said
            with pytest.raises(RuntimeError, match="got that of a process that has ended"):
                receiver(f"cb.open_shared({handle!r})")
            receiver("cuda.synchronize(); del v, seen")
        finally:
            if child:
                os.kill(child, 9)


def test_an_end_does_not_hang_on_a_sender_that_is_killed_meanwhile():
    sender = Peer()
    with Peer() as receiver:
        handle = sender("s, h = share()") or sender("h")
        receiver(f"v = cb.open_shared({handle!r})")
        sender("_share.keeper.Loop.done = lambda self, lease: time.sleep(60)")
        receiver.send("del v")
        time.sleep(0.1)
        sender.kill()
        assert receiver.receive(5.0) is None


def test_cancel_takes_a_handle_back(pair):
    sender, receiver = pair
    handle = sender("s, h = share(receivers=2)") or sender("h")
    receiver(f"v = cb.open_shared({handle!r})")
    sender("cb.cancel(h)")
    with pytest.raises(RuntimeError, match="taken back"):
        receiver(f"cb.open_shared({handle!r})")
    assert sender(
        "[(one.handle == h, one.nbytes, one.waiting, one.opened) for one in cb.shares()]"
    ) == [(True, 8, 0, 1)]
    receiver("del v")
    assert sender("is_over()")
    assert sender("cb.cancel(h)") is None, "one that is over"
    receiver("_, mine = share()")
    with pytest.raises(RuntimeError, match="got that of another process"):
        sender(f"cb.cancel({receiver('mine')!r})")
    receiver("cb.cancel(mine)")


def test_a_share_that_is_forgotten_is_in_the_log(pair):
    sender, _ = pair
    sender(
        "said = []\n"
        "class Handler(logging.Handler):\n"
        "    def emit(self, record): said.append(record.getMessage())\n"
        "log = logging.getLogger('cai_bridge'); log.setLevel(logging.WARNING)\n"
        "log.addHandler(Handler()); _share.keeper.FORGOTTEN = 0.01\n"
        "s, h = share()"
    )
    assert sender("settled(lambda: said)")[0].startswith("share: 8 bytes wait for 1 receivers")
    sender("log.handlers.pop(); log.setLevel(logging.CRITICAL); _share.keeper.FORGOTTEN = 60.0")


LEFT = (
    "(len(os.listdir('/proc/self/fd')), threading.active_count(), "
    "cuda._session.bytes_in_use, len(cb.shares()))"
)
MADE = (
    "sum(one.call in ('cuStreamCreate', 'cuEventCreate', 'cuMemPoolCreate') for one in cuda.calls)"
)


@pytest.mark.parametrize("copy", [None, True])
def test_nothing_is_left_after_a_thousand(pair, copy):
    sender, receiver = pair
    for round_ in range(2):
        if round_ == 1:
            sender("cuda.clear_calls()")
            receiver("cuda.clear_calls()")
            before = sender(LEFT), receiver(LEFT)
        for _ in range(10 if round_ == 0 else 40):
            handles = sender(f"[share(copy={copy})[1] for _ in range(20)]")
            receiver(f"for h in {handles!r}: cb.open_shared(h).release()")
            assert sender("is_over()")
    assert (sender(LEFT), receiver(LEFT)) == before
    # As many as are in use at once, however many there were.
    assert sender(MADE) <= 70
    assert receiver(MADE) <= 40


@pytest.mark.parametrize("copy", [None, True])
def test_each_call_of_the_driver_may_fail(pair, copy):
    sender, receiver = pair
    sender("log = logging.getLogger('cai_bridge')")
    trip = (
        f"cb.share(x, copy={copy})",
        "v = cb.open_shared({handle!r}); seen = read(v); v.release(); cuda.synchronize()",
    )
    calls = []
    for peer in pair:
        peer("cuda.clear_calls()")
    for at, faulty in ((0, sender), (1, receiver)):
        sender("x = cuda.array([1.0, 2.0])")
        for peer in pair:
            peer("cuda.clear_calls()")
        receiver(trip[1].format(handle=sender(trip[0])))
        receiver("del v, seen; gc.collect()")
        assert sender("settled(lambda: not cb.shares())")
        calls.append(sorted(set(faulty("[one.call for one in cuda.calls]"))))
        for call in calls[at]:
            faulty(f"cuda.fail({call!r})")
            for attempt in range(3):
                try:
                    handle = sender(trip[0])
                    receiver(trip[1].format(handle=handle))
                except RuntimeError as error:
                    if not re.search("DriverError|driver failed", str(error)) or attempt == 2:
                        raise
                    sender("for one in cb.shares(): cb.cancel(one.handle)")
                else:
                    break
            assert receiver("seen.value") == [1.0, 2.0], call
            receiver("del v, seen; gc.collect()")
            assert sender("settled(lambda: not cb.shares())"), call
            faulty("cuda.clear_faults()")
        sender("del x; gc.collect()")
    assert {"cuEventCreate", "cuIpcGetEventHandle", "cuDeviceGetUuid"} - set(calls[0]) <= {
        "cuEventCreate"
    }
    assert {"cuIpcOpenEventHandle", "cuEventDestroy"} <= set(calls[1])
    assert ("cuIpcOpenMemHandle" in calls[1]) is not bool(copy)
    assert ("cuMemPoolImportPointer" in calls[1]) is bool(copy)


def test_the_package_imports_nothing_of_it():
    code = (
        "import sys, cai_bridge; assert not {'cai_bridge._share', 'socket'} & set(sys.modules); "
        "cai_bridge.share; assert 'cai_bridge._share' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
