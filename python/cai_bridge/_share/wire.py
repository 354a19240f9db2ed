"""Handles, and the sockets that they lead to."""

from __future__ import annotations

import socket
import struct

# A handle begins with this. The name of the sender's socket and a secret token follow.
MAGIC, NAME, TOKEN = b"cai_bridge share 1\0", 16, 16


def address_of(name: bytes) -> bytes:
    return b"\0cai_bridge/" + name.hex().encode()


def credentials(peer: socket.socket) -> tuple[int, int]:
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def parsed(handle: object) -> tuple[bytes, bytes]:
    if not isinstance(handle, bytes | bytearray | memoryview):
        raise TypeError(f"handle: got {type(handle).__name__}; allowed: the bytes of share()")
    handle = bytes(handle)
    if not handle.startswith(MAGIC) or len(handle) != len(MAGIC) + NAME + TOKEN:
        raise ValueError(
            f"handle: got {len(handle)} bytes of another kind; allowed: those of share()"
        )
    return handle[len(MAGIC) : -TOKEN], handle[-TOKEN:]
