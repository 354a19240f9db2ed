"""JAX, whose streams nobody can name, and whose arrays are never written.

Late work is a chain of sums over a large array, each of which needs the one before; they are queued
before the call returns. Each array comes after a chain of matrix products, which JAX captures into
a graph, in a thread of its own.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

from .. import adapters

SIDE, PASSES, PASSES_MS = 1 << 25, 8, 0.5
# As many as XLA asks for before it makes a graph of them, and one more.
PRODUCTS = 6


@jax.jit
def _passes(seed: Any, nothing: Any) -> Any:
    """Compute 0, which takes about `PASSES_MS`, and which the compiler cannot know."""

    def one(_: int, total: Any) -> Any:
        return jnp.sum(jnp.sin(seed + total)) * jnp.float32(1e-9)

    total = jax.lax.fori_loop(0, PASSES, one, nothing)
    return jnp.where(total > 1e30, 1.0, 0.0).astype(jnp.float32)


@jax.jit
def _products(square: Any, nothing: Any) -> Any:
    """Compute 0 by products of matrices, which the compiler cannot know."""
    total = square + nothing
    for _ in range(PRODUCTS):
        total = total @ square + nothing
    return jnp.where(total[0, 0] > 1e30, 1.0, 0.0).astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def _full(words: int, value: Any, nothing: Any) -> Any:
    return jnp.full((words,), value, dtype=jnp.float32) + nothing


@jax.jit
def _copied(array: Any, nothing: Any) -> Any:
    """Compute the same values: an identity would be handed back as the same memory."""
    return array + nothing


class Adapter(adapters.Adapter):
    """Arrays on the first GPU."""

    name = "jax"

    def start(self) -> None:
        super().start()
        self.gpu = jax.devices("gpu")[0]
        self.nothing = jax.device_put(np.float32(0), self.gpu)
        self.seed = jnp.zeros((SIDE,), jnp.float32).block_until_ready()
        self.square = jnp.zeros((64, 64), jnp.float32).block_until_ready()
        self.queued: deque[Any] = deque()

    def _late(self, spin: float) -> Any:
        nothing = self.nothing
        for _ in range(-int(-spin // PASSES_MS)):
            nothing = _passes(self.seed, nothing)
        return _products(self.square, nothing)

    def _noted(self, array: Any, spin: float) -> Any:
        if spin:
            late = "was not late" if array.is_ready() else "was late"
            self.counts[f"JAX's work that was to be late and {late}"] += 1
        return array

    def is_pending(self, stream: Any) -> bool:
        return False

    def synchronize(self) -> None:
        """Wait for the copies, which JAX may not have given to the device yet."""
        for _ in range(len(self.queued)):
            try:
                self.queued.popleft().block_until_ready()
            except IndexError:
                break
        super().synchronize()

    def full(self, words: int, value: int, stream: Any, spin: float) -> Any:
        return self._noted(_full(words, np.float32(value), self._late(spin)), spin)

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        copied = self._noted(_copied(array, self._late(spin)), spin)
        self.queued.append(copied)
        return copied

    def values(self, copied: Any) -> Any:
        return np.asarray(copied)

    def pointer(self, array: Any) -> int | None:
        return None

    def has(self, array: Any) -> bool:
        return isinstance(array, jax.Array)

    def take(self, how: str, source: Any, stream: Any) -> Any:
        return jax.dlpack.from_dlpack(source)

    def take_natively(self, how: str, source: Any, stream: Any) -> Any:
        if adapters.speaks(source, "__dlpack__"):
            return jax.dlpack.from_dlpack(source)
        return jnp.asarray(source)

    def warm_up(self, words: int, kinds: dict[str, str]) -> None:
        array = self.full(words, 0, None, PASSES_MS)
        self.values(self.copy(array, words, None, PASSES_MS))
        self.synchronize()
        self.counts.clear()
