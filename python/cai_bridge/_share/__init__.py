"""Share GPU memory with other processes of this machine, without a copy.

The sender owns the memory. A receiver keeps a connection to the sender as long as it uses the
memory, so the kernel tells the sender when a receiver ends, for whatever reason. Three messages go
over the connection: the handle's token, ``done`` once an event is recorded behind the receiver's
work, and ``closed`` once its mapping is closed. Events order the work both ways: no host waits for
a GPU.
"""

from __future__ import annotations

from .receiver import open_shared
from .sender import Share, cancel, share, shares

__all__ = ["Share", "cancel", "open_shared", "share", "shares"]
