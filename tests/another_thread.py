"""Call in a thread of its own: one that no library has set up, without a current context."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def in_another_thread(call: Callable[[], object]) -> None:
    """Call from another thread, wait for its end, and pass on what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()
