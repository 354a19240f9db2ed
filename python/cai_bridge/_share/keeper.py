"""The thread that answers receivers, and keeps what is shared until the last of them has ended."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import queue
import secrets
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from cai_bridge._core import CaiView, DLPackView, DriverError, _IpcEvent, _IpcStream

from .gpu import GPUS, Gpu, twice
from .wire import NAME, TOKEN, address_of, credentials

# A receiver of another pid namespace has no pidfd: its GPU context may outlive its connection.
UNSEEN = 10.0
# A share that no receiver has opened for this long is logged.
FORGOTTEN = 60.0

_log = logging.getLogger("cai_bridge")
# A fork replaces it, so it is read as this module's attribute.
lock = threading.RLock()


class Shared:
    """A shared array: its owner, and the streams to order at its end."""

    def __init__(self, gpu: Gpu, view: CaiView | DLPackView, stream: _IpcStream) -> None:
        self.gpu, self.view, self.stream = gpu, view, stream
        self.info: dict[str, Any] = {}
        self.token = secrets.token_bytes(TOKEN)
        # One view for each receiver. Releasing it makes the producer's stream wait.
        self.left: list[CaiView] = []
        self.opened, self.since, self.told = 0, time.monotonic(), False
        self.is_cancelled = False
        self.export: Callable[[], int] | None = None
        self.ready: _IpcEvent | None = None

    @property
    def is_over(self) -> bool:
        return not self.left and not self.opened

    def finish(self) -> None:
        """Release the owner."""
        for one in (*self.left, self.view):
            released(one)
        self.left.clear()
        if self.ready is not None:
            self.gpu.give_event(self.ready)
        self.gpu.give_stream(self.stream)


def released(view: CaiView | DLPackView) -> None:
    try:
        view.release()
    except DriverError:
        try:
            view.release()
        except DriverError as error:
            _log.warning("share: the owner's end failed: %s", error)


class Lease:
    """A receiver, as the sender knows it."""

    def __init__(self, peer: socket.socket, pid: int) -> None:
        self.peer, self.pid = peer, pid
        self.shared: Shared | None = None
        self.view: CaiView | None = None
        self.done: _IpcEvent | None = None
        self.alive: int | None = None
        self.until: float | None = None
        # Whether the process has ended, and whether every copy of its connection is closed.
        self.is_dead, self.is_silent = False, False
        if pid:
            try:
                self.alive = os.pidfd_open(pid)
            except ProcessLookupError:  # it has ended, and its parent knows
                self.is_dead = True
            except (OSError, AttributeError):
                pass


class Loop(threading.Thread):
    """The thread that answers receivers, and notices the end of receivers and of senders."""

    def __init__(self) -> None:
        super().__init__(name="cai_bridge.share", daemon=True)
        self.pid = os.getpid()
        self.address = secrets.token_bytes(NAME)
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self.server.bind(address_of(self.address))  # an abstract name leaves no file behind
        self.server.listen(128)
        self.shares: dict[bytes, Shared] = {}
        self.leases: set[Lease] = set()
        self.senders = select.epoll()
        self.opened: dict[int, tuple[socket.socket, Callable[[], None]]] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.server, selectors.EVENT_READ, self.accept)
        self.selector.register(self.senders, selectors.EVENT_READ, self.sender_ended)
        self.closing: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.closer = threading.Thread(
            target=self.close, name="cai_bridge.share.close", daemon=True
        )

    def run(self) -> None:
        while True:
            for key, _ in self.selector.select(1.0):
                try:
                    key.data()
                except Exception:
                    _log.exception("share: a receiver was not served")
            self.look()

    def close(self) -> None:
        """Close the mappings whose work is done, in a thread, since CUDA waits in that call."""
        while True:
            close = self.closing.get()
            try:
                close()
            except Exception:  # the sender keeps the memory until this process ends
                _log.exception("share: opened memory was not closed")
            del close

    @property
    def is_current(self) -> bool:
        return threading.current_thread() in (self, self.closer)

    def look(self) -> None:
        now = time.monotonic()
        for lease in [one for one in self.leases if one.until is not None and one.until < now]:
            self.ended(lease)
        for shared in list(self.shares.values()):
            if shared.left and not shared.told and now - shared.since > FORGOTTEN:
                shared.told = True
                text = "share: %d bytes wait for %d receivers since %d s; see cancel(handle)"
                _log.warning(text, shared.view.nbytes, len(shared.left), FORGOTTEN)

    def accept(self) -> None:
        try:
            peer, _ = self.server.accept()
        except BlockingIOError:
            return
        pid, uid = credentials(peer)
        if uid != os.getuid():
            _log.warning("share: a process of user %d was refused", uid)
            peer.close()
            return
        lease = Lease(peer, pid)
        peer.setblocking(False)
        self.leases.add(lease)
        self.selector.register(peer, selectors.EVENT_READ, lambda: self.hear(lease))
        if lease.alive is not None:
            self.selector.register(lease.alive, selectors.EVENT_READ, lambda: self.died(lease))

    def hear(self, lease: Lease) -> None:
        try:
            said = lease.peer.recv(256)
        except BlockingIOError:
            return None
        except OSError:
            said = b""
        if lease.shared is None and said:
            return self.greet(lease, said)
        match said:
            case b"done":
                self.done(lease)
                self.say(lease, b"ok")
            case b"closed":
                self.ended(lease)
            case b"failed":
                self.ended(lease, again=True)
            case _:
                self.selector.unregister(lease.peer)
                lease.is_silent = True
                if lease.shared is None or lease.is_dead:
                    self.ended(lease)
                elif lease.alive is None:
                    lease.until = time.monotonic() + UNSEEN
        return None

    def died(self, lease: Lease) -> None:
        """Note that a process has ended.

        Its GPU context ends with the last copy of its files. A child that it forked has such
        copies, and copies of the connection. The connection may also end before the context.
        """
        if lease.alive is not None:
            self.selector.unregister(lease.alive)
        lease.is_dead = True
        if lease.is_silent or lease.shared is None:
            self.ended(lease)

    def say(self, lease: Lease, text: bytes, files: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):
            socket.send_fds(lease.peer, [text], files or [])

    def greet(self, lease: Lease, token: bytes) -> None:
        with lock:
            found = (one for one in self.shares.values() if hmac.compare_digest(one.token, token))
            shared = next(found, None)
            if shared is None or not shared.left:
                why = "it was opened as often as share(receivers=) allows, or taken back"
                self.say(lease, json.dumps({"refused": why}).encode())
                return self.ended(lease)
            lease.shared, lease.view = shared, shared.left.pop()
            shared.opened += 1
        files: list[int] = []
        try:
            done = lease.done = twice(shared.gpu.take_event)
            answer = {**shared.info, "done": twice(lambda: done.name).hex()}
            if shared.export is not None:
                files.append(twice(shared.export))
        except DriverError as error:
            self.say(
                lease, json.dumps({"refused": f"the sender's driver failed: {error}"}).encode()
            )
            return self.ended(lease, again=True)
        self.say(lease, json.dumps(answer).encode(), files)
        for file in files:
            os.close(file)
        return None

    def done(self, lease: Lease) -> None:
        """Make work queued behind the array wait for the receiver's work."""
        if lease.view is not None and lease.shared is not None:
            shared = lease.shared
            if (done := lease.done) is not None:
                twice(lambda: shared.stream.wait(done))
            view, lease.view = lease.view, None
            released(view)

    def ended(self, lease: Lease, *, again: bool = False) -> None:
        if lease not in self.leases:
            return
        self.leases.discard(lease)
        for file in (lease.peer, lease.alive):
            if file is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self.selector.unregister(file)
        lease.peer.close()
        if lease.alive is not None:
            os.close(lease.alive)
        shared = lease.shared
        if shared is None:
            return
        with lock:
            shared.opened -= 1
            if again and lease.view is not None and not shared.is_cancelled:
                shared.left.append(lease.view)
                lease.view = None
            is_over = shared.is_over and self.shares.pop(shared.token, None) is not None
        if lease.view is not None:
            released(lease.view)
        if lease.done is not None:
            shared.gpu.give_event(lease.done)
        if is_over:
            shared.finish()

    def sender_ended(self) -> None:
        for file, _ in self.senders.poll(0):
            with contextlib.suppress(OSError):
                self.senders.unregister(file)
            if known := self.opened.pop(file, None):
                known[1]()


_loop: Loop | None = None


def running() -> Loop | None:
    """Return this process's thread, if it has one."""
    return _loop


def started() -> Loop:
    """Return this process's thread, and start it if there is none."""
    global _loop  # noqa: PLW0603
    with lock:
        if _loop is None:
            _loop = Loop()
            _loop.start()
            _loop.closer.start()
        return _loop


def _forked() -> None:
    """Close this child's copies of the connections to receivers: they report the parent's end.

    The connections to senders stay open, since the child has copies of the files that keep the GPU
    context.
    """
    global _loop, lock
    loop, _loop, lock = _loop, None, threading.RLock()
    GPUS.clear()
    if loop is not None:
        loop.server.close()
        loop.selector.close()
        loop.senders.close()
        for lease in loop.leases:
            lease.peer.close()
            if lease.alive is not None:
                os.close(lease.alive)


os.register_at_fork(after_in_child=_forked)
