"""The receiver's side: `open_shared`, and what an opened array does at its end."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import weakref
from collections.abc import Iterator
from typing import Any

from cai_bridge._core import (
    DLPackView,
    DriverError,
    _IpcDevice,
    _IpcEvent,
    _IpcStream,
    from_cai,
    to_dlpack,
)

from . import keeper
from .gpu import Gpu, gpu_at, twice
from .wire import address_of, credentials, parsed

# How long one side waits for the other's thread, which answers at once.
ANSWER = 20.0

_log = logging.getLogger("cai_bridge")


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
    address, token = parsed(handle)
    _IpcDevice(0)  # a fork is refused before it sends anything to the sender
    loop = keeper.started()
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
        peer.connect(address_of(address))
        if credentials(peer)[1] != os.getuid():
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
    loop: keeper.Loop, peer: socket.socket, answer: dict[str, Any], files: list[int]
) -> DLPackView:
    gpu = gpu_at(_ordinal(answer["uuid"]))
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
    twice(ready.close)
    _watch(loop, peer, view)
    return view


def _open_here(loop: keeper.Loop, token: bytes) -> DLPackView:
    """Open an array in the process that shared it, as an ordinary view."""
    with keeper.lock:
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


def _watch(loop: keeper.Loop, peer: socket.socket, view: DLPackView) -> None:
    """Release the view once the sender has ended, since nobody keeps the memory any more."""
    known = weakref.ref(view)

    def ended() -> None:
        with contextlib.suppress(BlockingIOError):
            if peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        _log.warning("open_shared: the sender has ended, and its array with it")
        if found := known():
            keeper.released(found)

    loop.opened[peer.fileno()] = peer, ended
    loop.senders.register(peer.fileno(), select.EPOLLRDHUP)


class _Opened:
    """The owner of an opened array, whose end tells the sender."""

    def __init__(self, gpu: Gpu, stream: _IpcStream, peer: socket.socket) -> None:
        self.gpu, self.stream, self.peer, self.pid = gpu, stream, peer, os.getpid()
        self.memory: dict[str, Any] | None = None
        self.done: _IpcEvent | None = None

    def __del__(self) -> None:
        if self.pid != os.getpid() or self.done is None:
            return
        loop = keeper.running()
        if loop is None:
            return
        loop.opened.pop(self.peer.fileno(), None)
        end = _End(self, self.done)
        end.order()
        if loop.is_current:
            loop.closing.put(end.close)
        else:
            try:
                end.tell()
            finally:
                loop.closing.put(end.close)


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
        twice(lambda: self.stream.record(self.done))

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
            twice(self.done.wait)
            self.gpu.close(self.memory, self.stream)
        twice(self.done.close)
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
