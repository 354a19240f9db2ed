"""Share GPU memory with other processes of this machine, without a copy.

The sender owns the memory. A receiver keeps a connection to the sender as long as it uses the
memory, so the kernel tells the sender when a receiver ends, for whatever reason. Three messages go
over the connection: the handle's token, ``done`` once an event is recorded behind the receiver's
work, and ``closed`` once its mapping is closed. Events order the work both ways: no host waits for
a GPU.
"""

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
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from cai_bridge._core import (
    CaiView,
    DLPackView,
    DriverError,
    _IpcDevice,
    _IpcEvent,
    _IpcStream,
    from_cai,
    to_cai,
    to_dlpack,
)
from cai_bridge._protocols import SupportsCudaStream

__all__ = ["Share", "cancel", "open_shared", "share", "shares"]

# A handle begins with this. The name of the sender's socket and a secret token follow.
MAGIC, NAME, TOKEN = b"cai_bridge share 1\0", 16, 16
# How long one side waits for the other's thread, which answers at once.
ANSWER = 20.0
# A receiver of another pid namespace has no pidfd: its GPU context may outlive its connection.
UNSEEN = 10.0
# A share that no receiver has opened for this long is logged.
FORGOTTEN = 60.0
# CUDA_ERROR_INVALID_VALUE, INVALID_HANDLE, NOT_PERMITTED, NOT_SUPPORTED: CUDA exports no handle of
# the memory.
REFUSALS = {1, 400, 800, 801}
WAYS = (
    "memory of cudaMalloc, as the default allocators of PyTorch and CuPy have; a pool that exports "
    "file descriptors, as cuda.core's DeviceMemoryResource with ipc_enabled; or share(x, copy=True)"
)

_log = logging.getLogger("cai_bridge")
_lock = threading.RLock()


class Share(NamedTuple):
    """A shared array that receivers may still open, or have open.

    Attributes
    ----------
    handle : bytes
        The handle that `share` returned.
    nbytes : int
        The size of the array.
    waiting, opened : int
        How many more receivers may open it, and how many have it open.
    seconds : float
        The time since it was shared, in seconds.
    """

    handle: bytes
    nbytes: int
    waiting: int
    opened: int
    seconds: float


class _Gpu:
    """The bridge's streams, events and pools on a GPU, and memory opened from other processes."""

    def __init__(self, device: _IpcDevice) -> None:
        self.device = device
        self.lock = threading.Lock()
        self._streams: list[_IpcStream] = []
        self._events: list[_IpcEvent] = []
        self._pool: int | None = None
        self._imported: dict[str, int] = {}
        self._opened: dict[tuple[str | None, str], list[int]] = {}

    def take_stream(self) -> _IpcStream:
        with contextlib.suppress(IndexError):
            return self._streams.pop()
        return self.device.stream()

    def give_stream(self, stream: _IpcStream) -> None:
        self._streams.append(stream)

    def take_event(self) -> _IpcEvent:
        with contextlib.suppress(IndexError):
            return self._events.pop()
        return self.device.event()

    def give_event(self, event: _IpcEvent) -> None:
        self._events.append(event)

    def pool(self) -> int:
        """Return the GPU's pool for copies."""
        with self.lock:
            if self._pool is None:
                self._pool = self.device.create_pool()
            return self._pool

    def open(self, memory: dict[str, Any], files: list[int]) -> int:
        """Open an allocation of another process. If it is open already, count one more user."""
        with self.lock:
            if known := self._opened.get(_key(memory)):
                known[1] += 1
                return known[0]
            name = bytes.fromhex(memory["name"])
            if memory["pool"] is None:
                ptr = self.device.open_memory(name)
            else:
                if memory["pool"] not in self._imported:
                    self._imported[memory["pool"]] = self.device.import_pool(files[0])
                ptr = self.device.import_pointer(self._imported[memory["pool"]], name)
            self._opened[_key(memory)] = [ptr, 1]
            return int(ptr)

    def close(self, memory: dict[str, Any], stream: _IpcStream) -> None:
        """Close an allocation: a pool's in the order of `stream`, others after all work is done."""
        with self.lock:
            known = self._opened[_key(memory)]
            if known[1] == 1:
                if memory["pool"] is None:
                    _twice(lambda: self.device.close_memory(known[0]))
                else:
                    _twice(lambda: stream.free(known[0]))
                del self._opened[_key(memory)]
            known[1] -= 1


def _key(memory: dict[str, Any]) -> tuple[str | None, str]:
    return memory["pool"], memory["name"]


_gpus: dict[tuple[int, int], _Gpu] = {}


def _gpu(ordinal: int) -> _Gpu:
    device = _IpcDevice(ordinal)
    with _lock:
        return _gpus.setdefault(device.key, _Gpu(device))


def _twice(call: Callable[[], Any]) -> Any:
    """Retry a failed driver call once, since nobody could handle an exception at an end."""
    try:
        return call()
    except DriverError:
        return call()


class _Block:
    """Memory from the bridge's own pool."""

    def __init__(self, stream: _IpcStream, ptr: int) -> None:
        self._stream, self._ptr, self._pid = stream, ptr, os.getpid()

    def __del__(self) -> None:
        if self._pid == os.getpid():
            _twice(lambda: self._stream.free(self._ptr))


class _Shared:
    """A shared array: its owner, and the streams to order at its end."""

    def __init__(self, gpu: _Gpu, view: CaiView | DLPackView, stream: _IpcStream) -> None:
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
            _released(one)
        self.left.clear()
        if self.ready is not None:
            self.gpu.give_event(self.ready)
        self.gpu.give_stream(self.stream)


def _released(view: CaiView | DLPackView) -> None:
    try:
        view.release()
    except DriverError:
        try:
            view.release()
        except DriverError as error:
            _log.warning("share: the owner's end failed: %s", error)


class _Lease:
    """A receiver, as the sender knows it."""

    def __init__(self, peer: socket.socket, pid: int) -> None:
        self.peer, self.pid = peer, pid
        self.shared: _Shared | None = None
        self.view: CaiView | None = None
        self.done: _IpcEvent | None = None
        self.alive: int | None = None
        self.until: float | None = None
        # Whether the process has ended, and whether every copy of its connection is closed.
        self.is_dead, self.is_silent = False, False
        if pid:
            with contextlib.suppress(OSError, AttributeError):
                self.alive = os.pidfd_open(pid)


class _Loop(threading.Thread):
    """The thread that answers receivers, and notices the end of receivers and of senders."""

    def __init__(self) -> None:
        super().__init__(name="cai_bridge.share", daemon=True)
        self.pid = os.getpid()
        self.address = secrets.token_bytes(NAME)
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self.server.bind(_address(self.address))  # an abstract name leaves no file behind
        self.server.listen(128)
        self.shares: dict[bytes, _Shared] = {}
        self.leases: set[_Lease] = set()
        self.senders = select.epoll()
        self.opened: dict[int, tuple[socket.socket, Callable[[], None]]] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.server, selectors.EVENT_READ, self.accept)
        self.selector.register(self.senders, selectors.EVENT_READ, self.sender_ended)
        self.closing: queue.SimpleQueue[_End] = queue.SimpleQueue()
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
            end = self.closing.get()
            try:
                end.close()
            except Exception:  # the sender keeps the memory until this process ends
                _log.exception("share: opened memory was not closed")
            del end

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
        pid, uid = _credentials(peer)
        if uid != os.getuid():
            _log.warning("share: a process of user %d was refused", uid)
            peer.close()
            return
        lease = _Lease(peer, pid)
        peer.setblocking(False)
        self.leases.add(lease)
        self.selector.register(peer, selectors.EVENT_READ, lambda: self.hear(lease))
        if lease.alive is not None:
            self.selector.register(lease.alive, selectors.EVENT_READ, lambda: self.died(lease))

    def hear(self, lease: _Lease) -> None:
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

    def died(self, lease: _Lease) -> None:
        """Note that a process has ended.

        Its GPU context ends with the last copy of its files. A child that it forked has such
        copies, and copies of the connection. The connection may also end before the context.
        """
        if lease.alive is not None:
            self.selector.unregister(lease.alive)
        lease.is_dead = True
        if lease.is_silent or lease.shared is None:
            self.ended(lease)

    def say(self, lease: _Lease, text: bytes, files: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):
            socket.send_fds(lease.peer, [text], files or [])

    def greet(self, lease: _Lease, token: bytes) -> None:
        with _lock:
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
            done = lease.done = _twice(shared.gpu.take_event)
            answer = {**shared.info, "done": _twice(lambda: done.name).hex()}
            if shared.export is not None:
                files.append(_twice(shared.export))
        except DriverError as error:
            self.say(
                lease, json.dumps({"refused": f"the sender's driver failed: {error}"}).encode()
            )
            return self.ended(lease, again=True)
        self.say(lease, json.dumps(answer).encode(), files)
        for file in files:
            os.close(file)
        return None

    def done(self, lease: _Lease) -> None:
        """Make work queued behind the array wait for the receiver's work."""
        if lease.view is not None and lease.shared is not None:
            shared = lease.shared
            if (done := lease.done) is not None:
                _twice(lambda: shared.stream.wait(done))
            view, lease.view = lease.view, None
            _released(view)

    def ended(self, lease: _Lease, *, again: bool = False) -> None:
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
        with _lock:
            shared.opened -= 1
            if again and lease.view is not None and not shared.is_cancelled:
                shared.left.append(lease.view)
                lease.view = None
            is_over = shared.is_over and self.shares.pop(shared.token, None) is not None
        if lease.view is not None:
            _released(lease.view)
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


_loop: _Loop | None = None


def _started() -> _Loop:
    global _loop  # noqa: PLW0603
    with _lock:
        if _loop is None:
            _loop = _Loop()
            _loop.start()
            _loop.closer.start()
        return _loop


def _forked() -> None:
    """Close this child's copies of the connections to receivers: they report the parent's end.

    The connections to senders stay open, since the child has copies of the files that keep the GPU
    context.
    """
    global _loop, _lock
    loop, _loop, _lock = _loop, None, threading.RLock()
    _gpus.clear()
    if loop is not None:
        loop.server.close()
        loop.selector.close()
        loop.senders.close()
        for lease in loop.leases:
            lease.peer.close()
            if lease.alive is not None:
                os.close(lease.alive)


os.register_at_fork(after_in_child=_forked)


def _address(name: bytes) -> bytes:
    return b"\0cai_bridge/" + name.hex().encode()


def _credentials(peer: socket.socket) -> tuple[int, int]:
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def _exported(
    gpu: _Gpu, view: CaiView | DLPackView
) -> tuple[dict[str, Any], Callable[[], int] | None]:
    """Return how a receiver opens a view's memory, and a function that makes the file it needs."""
    device = gpu.device
    start, nbytes, is_legacy, pool = device.allocation(view.ptr)
    if not start <= view.ptr + _reach(view) < start + nbytes:
        raise BufferError(f"x: got memory in several allocations; allowed: {WAYS}")
    offset = view.ptr - start
    try:
        if is_legacy:
            return {"name": device.name_memory(start).hex(), "pool": None, "offset": offset}, None
        if pool is not None:
            os.close(device.export_pool(pool))
            memory = {
                "name": device.name_pointer(start).hex(),
                "pool": f"{pool:x}",
                "offset": offset,
            }
            return memory, lambda: device.export_pool(pool)
    except DriverError as error:
        if error.code not in REFUSALS:
            raise
        text = f"x: got memory that the driver does not hand on ({error}; as under MIG)"
        raise BufferError(f"{text}; allowed: {WAYS}") from error
    raise BufferError(f"x: got memory that the driver does not hand on; allowed: {WAYS}")


def _reach(view: CaiView | DLPackView) -> int:
    """Return how many bytes of an array lie before its first item, because of negative strides."""
    if view.strides is None or 0 in view.shape:
        return 0
    steps = zip(view.shape, view.strides, strict=True)
    return sum((extent - 1) * min(0, stride) for extent, stride in steps)


def _copied(gpu: _Gpu, view: CaiView, stream: _IpcStream) -> DLPackView:
    """Copy into the bridge's own pool, which every process can open."""
    source = to_cai(view, stream=stream)
    block = _Block(stream, stream.allocate(gpu.pool(), view.nbytes))
    stream.copy(source, block._ptr)
    entries = {
        "shape": view.shape,
        "typestr": view.typestr,
        "data": (block._ptr, view.readonly),
        "strides": None,
        "version": 3,
    }
    made = from_cai(entries, stream=stream, owner=block, dtype=_dtype(view))
    source.release(stream)
    view.release()
    return made


def _dtype(view: CaiView | DLPackView) -> str | None:
    """Return the name of a type that its typestr does not name."""
    return view._dtype_name if view.typestr[1] == "V" else None


def share(
    x: object,
    *,
    receivers: int = 1,
    stream: int | SupportsCudaStream | None = None,
    readonly: bool | None = None,
    copy: bool | None = None,
) -> bytes:
    """Let other processes of this machine open an array, without a copy.

    The bridge keeps the owner until every receiver has closed its array or has ended. A receiver's
    work waits for work pending on `x` now. Work queued on the producer's stream after a receiver's
    end waits for the receiver's work. The host waits for neither. Until then nobody may write the
    memory, unless the receivers expect it.

    Parameters
    ----------
    x : array
        An array of any library, or a view. Its memory is from ``cudaMalloc``, or from a pool that
        exports file descriptors. Other memory needs ``copy=True``.
    receivers : int, optional
        How many times the array may be opened.
    stream : stream, optional
        The stream that the array is used on here, as for `to_cai`.
    readonly : bool, optional
        Whether the receivers get the array read-only; by default as `x` is.
    copy : bool, optional
        Whether to share a copy, in a pool of the bridge. A handle of ``cudaMalloc`` memory shows a
        receiver the whole allocation, with the array's neighbours; a copy shows no other array.

    Returns
    -------
    bytes
        The handle. Send it to the other process in any way: a queue, a pipe, Dask, Ray. It works
        for processes of the same user. `cancel` revokes it.

    Raises
    ------
    BufferError
        The memory cannot be shared; the message names the ways out.
    DriverError
        During a graph capture of the array's stream, in a fork, or after an error of the driver.

    Examples
    --------
    The sender, and then the receiver in another process::

        queue.put(cai_bridge.share(x))

        with cai_bridge.open_shared(queue.get()) as view:
            y = cai_bridge.convert(view, "cupy")
    """
    if isinstance(receivers, bool) or not isinstance(receivers, int):
        raise TypeError(f"receivers: got {receivers!r}; allowed: an integer, 1 or more")
    if receivers < 1:
        raise ValueError(f"receivers: got {receivers}; allowed: 1 or more")
    if copy not in (None, True, False):
        raise TypeError(f"copy: got {copy!r}; allowed: None, True, False")
    view: CaiView | DLPackView
    view = taken = to_cai(cast("Any", x), stream=stream, readonly=readonly)
    kind, ordinal = view.device
    if kind != 2 and not copy:
        raise BufferError(f"x: got memory of DLPack's device type {kind}; allowed: {WAYS}")
    gpu = _gpu(ordinal)
    _IpcDevice.refuse_capture(taken)
    uuid = gpu.device.uuid.hex()
    own = gpu.take_stream()
    shared = _Shared(gpu, view, own)
    try:
        memory = None
        if view.nbytes:
            if copy:
                shared.view = view = _copied(gpu, taken, own)
            memory, shared.export = _exported(gpu, view)
        for _ in range(receivers):
            shared.left.append(to_cai(view, stream=own))
        shared.ready = gpu.take_event()
        own.record(shared.ready)
        shared.info = {
            "uuid": uuid,
            "memory": memory,
            "shape": view.shape,
            "strides": view.strides,
            "typestr": view.typestr,
            "dtype": _dtype(view),
            "readonly": view.readonly,
            "ready": shared.ready.name.hex(),
        }
    except BaseException:
        shared.finish()
        raise
    loop = _started()
    if memory and memory["pool"]:
        memory["pool"] = f"{loop.address.hex()}/{uuid}/{memory['pool']}"
    with _lock:
        loop.shares[shared.token] = shared
    return MAGIC + loop.address + shared.token


def _parsed(handle: object) -> tuple[bytes, bytes]:
    if not isinstance(handle, bytes | bytearray | memoryview):
        raise TypeError(f"handle: got {type(handle).__name__}; allowed: the bytes of share()")
    handle = bytes(handle)
    if not handle.startswith(MAGIC) or len(handle) != len(MAGIC) + NAME + TOKEN:
        raise ValueError(
            f"handle: got {len(handle)} bytes of another kind; allowed: those of share()"
        )
    return handle[len(MAGIC) : -TOKEN], handle[-TOKEN:]


def cancel(handle: bytes) -> None:
    """Revoke a handle: no more receivers can open it. Receivers that have it open keep it.

    Parameters
    ----------
    handle : bytes
        The handle that `share` returned in this process. Nothing happens if it is used up or
        revoked.

    Raises
    ------
    ValueError
        The handle belongs to another process.

    Examples
    --------
    >>> from cai_bridge import cancel, share, shares
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda(shared=True) as cuda:
    ...     handle = share(cuda.array([1.0, 2.0]))
    ...     cancel(handle)  # no receiver took it
    ...     shares()
    []
    """
    address, token = _parsed(handle)
    loop = _loop
    if loop is None or address != loop.address:
        raise ValueError("handle: got that of another process; allowed: what share() returned here")
    with _lock:
        shared = loop.shares.get(token)
        if shared is None:
            return
        left, shared.left, shared.is_cancelled = shared.left, [], True
        if is_over := shared.is_over:
            del loop.shares[token]
    for view in left:
        _released(view)
    if is_over:
        shared.finish()


def shares() -> list[Share]:
    """Return what this process has shared and still keeps, oldest first.

    Returns
    -------
    list of Share
        Each with its handle, its size, how many receivers may still open it, how many have it open,
        and its age. A share that nobody has opened for a minute is also logged.

    Examples
    --------
    >>> from cai_bridge import share, shares
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda(shared=True) as cuda:
    ...     handle = share(cuda.array([1.0, 2.0], dtype="float32"))
    ...     [(one.nbytes, one.waiting, one.opened) for one in shares() if one.handle == handle]
    [(8, 1, 0)]
    """
    loop = _loop
    if loop is None:
        return []
    now = time.monotonic()
    with _lock:
        return [
            Share(
                MAGIC + loop.address + one.token,
                one.view.nbytes,
                len(one.left),
                one.opened,
                now - one.since,
            )
            for one in loop.shares.values()
        ]


class _Opened:
    """The owner of an opened array, whose end tells the sender."""

    def __init__(self, gpu: _Gpu, stream: _IpcStream, peer: socket.socket) -> None:
        self.gpu, self.stream, self.peer, self.pid = gpu, stream, peer, os.getpid()
        self.memory: dict[str, Any] | None = None
        self.done: _IpcEvent | None = None

    def __del__(self) -> None:
        if self.pid != os.getpid() or self.done is None:
            return
        loop = _loop
        if loop is None:
            return
        loop.opened.pop(self.peer.fileno(), None)
        end = _End(self, self.done)
        end.order()
        if loop.is_current:
            loop.closing.put(end)
        else:
            try:
                end.tell()
            finally:
                loop.closing.put(end)


class _End:
    """The remaining steps of an opened array's end: `order`, `tell`, `close`, once each."""

    def __init__(self, opened: _Opened, done: _IpcEvent) -> None:
        self.gpu, self.stream, self.peer = opened.gpu, opened.stream, opened.peer
        self.memory, self.done, self.is_told = opened.memory, done, False

    def order(self) -> None:
        """Record the event after all work on the array."""
        if self.memory is not None and self.memory["pool"] is not None:
            self.gpu.close(self.memory, self.stream)
            self.memory = None
        _twice(lambda: self.stream.record(self.done))

    def tell(self) -> None:
        """Make the sender's stream wait, before the sender may be told to write."""
        self.is_told = True
        with contextlib.suppress(OSError):
            self.peer.send(b"done")
            self.peer.recv(16)

    def close(self) -> None:
        if not self.is_told:
            self.tell()
        if self.memory is not None:
            _twice(self.done.wait)
            self.gpu.close(self.memory, self.stream)
        _twice(self.done.close)
        with contextlib.suppress(OSError):
            self.peer.send(b"closed")
        self.peer.close()
        self.gpu.give_stream(self.stream)


def _ordinal(uuid: str) -> int:
    """Return the ordinal in this process of the GPU with this UUID."""
    for ordinal in _ordinals():
        if _IpcDevice(ordinal).uuid.hex() == uuid:
            return ordinal
    text = f"handle: got memory of GPU {uuid}, which this process does not see; allowed: a GPU of "
    raise BufferError(f"{text}CUDA_VISIBLE_DEVICES; or send a copy: convert(x, 'numpy')")


def _ordinals() -> Iterator[int]:
    ordinal = 0
    while True:
        try:
            _ = _IpcDevice(ordinal).uuid
        except DriverError as error:
            if error.code == 101:  # CUDA_ERROR_INVALID_DEVICE
                return
            raise
        yield ordinal
        ordinal += 1


def open_shared(handle: bytes) -> DLPackView:
    """Open an array that another process of this machine shared.

    Parameters
    ----------
    handle : bytes
        The handle that `share` returned there.

    Returns
    -------
    DLPackView
        A view of the sender's memory, like any other. `convert` makes an array of it, and ``with``
        or `release` ends it. The sender learns when the last user has ended. After ``release()``
        you may tell the sender to write: its stream waits already. If the sender ends, the view
        refuses to be read.

    Raises
    ------
    BufferError
        The sender has ended or has taken the handle back; the handle was opened as often as
        allowed; or this process does not see the GPU.
    DriverError
        In a fork, or after an error of the driver. The handle may be opened again then.

    Examples
    --------
    In the receiving process, with the bytes that the sender sent::

        with cai_bridge.open_shared(handle) as view:
            total = cai_bridge.convert(view, "torch").sum().item()
    """
    address, token = _parsed(handle)
    _IpcDevice(0)  # a fork is refused before it sends anything to the sender
    loop = _started()
    if address == loop.address:
        return _open_here(loop, token)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    files: list[int] = []
    try:
        peer.settimeout(ANSWER)
        answer, files = _asked(peer, address, token)
        view = _opened(loop, peer, answer, files)
    except BaseException:
        with contextlib.suppress(OSError):
            peer.send(b"failed")
        peer.close()
        raise
    finally:
        for file in files:
            os.close(file)
    return view


def _asked(peer: socket.socket, address: bytes, token: bytes) -> tuple[dict[str, Any], list[int]]:
    ended = "handle: got that of a process that has ended; allowed: one of a process that runs"
    try:
        peer.connect(_address(address))
        if _credentials(peer)[1] != os.getuid():
            raise BufferError("handle: got that of another user; allowed: one of the same user")
        peer.send(token)
        said, files, _, _ = socket.recv_fds(peer, 1 << 16, 1)
    except TimeoutError as error:
        text = f"handle: got that of a process that has not answered in {ANSWER:.0f} s"
        raise BufferError(f"{text}; allowed: one of a process that runs") from error
    except OSError as error:
        raise BufferError(ended) from error
    if not said:
        raise BufferError(ended)
    answer = json.loads(said)
    if why := answer.get("refused"):
        raise BufferError(f"handle: got one that the sender refuses: {why}; allowed: a new share()")
    return answer, files


def _opened(
    loop: _Loop, peer: socket.socket, answer: dict[str, Any], files: list[int]
) -> DLPackView:
    gpu = _gpu(_ordinal(answer["uuid"]))
    device, stream, memory = gpu.device, gpu.take_stream(), answer["memory"]
    owner, ptr, undo = _Opened(gpu, stream, peer), 0, contextlib.ExitStack()
    with undo:
        undo.callback(gpu.give_stream, stream)
        ready = device.open_event(bytes.fromhex(answer["ready"]))
        undo.callback(ready.close)
        stream.wait(ready)
        done = device.open_event(bytes.fromhex(answer["done"]))
        undo.callback(done.close)
        if memory is not None:
            ptr = gpu.open(memory, files) + memory["offset"]
            owner.memory = memory
            undo.callback(done.wait)
            undo.callback(stream.record, done)
            undo.callback(gpu.close, memory, stream)
        entries = {
            "shape": tuple(answer["shape"]),
            "typestr": answer["typestr"],
            "data": (ptr, answer["readonly"]),
            "strides": None if answer["strides"] is None else tuple(answer["strides"]),
            "version": 3,
        }
        view = from_cai(entries, stream=stream, owner=owner, dtype=answer["dtype"])
        undo.pop_all()
    owner.done = done
    # The event can be closed: a wait that is queued already stays valid.
    _twice(ready.close)
    _watch(loop, peer, view)
    return view


def _watch(loop: _Loop, peer: socket.socket, view: DLPackView) -> None:
    """Release the view once the sender has ended, since nobody keeps the memory any more."""
    known = weakref.ref(view)

    def ended() -> None:
        with contextlib.suppress(BlockingIOError):
            if peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        _log.warning("open_shared: the sender has ended, and its array with it")
        if found := known():
            _released(found)

    loop.opened[peer.fileno()] = peer, ended
    loop.senders.register(peer.fileno(), select.EPOLLRDHUP)


def _open_here(loop: _Loop, token: bytes) -> DLPackView:
    """Open an array in the process that shared it, as an ordinary view."""
    with _lock:
        shared = loop.shares.get(token)
        if shared is None or not shared.left:
            raise BufferError(
                "handle: got one that was opened as often as share(receivers=) allows, or taken "
                "back; allowed: a new share()"
            )
        view = shared.left.pop()
        if is_over := shared.is_over:
            del loop.shares[token]
    opened = to_dlpack(view)
    if is_over:
        shared.finish()
    return opened
