"""Runs a program with its objects at addresses, and its types of versions, drawn from a seed.

    python layout.py SEED PROGRAM [ARGUMENT ...]

Python's cache of attributes has a slot by the name's address and the type's version.
"""

import runpy
import sys


def drawn(seed):
    """Draw numbers without end; `random` takes longer to import than all of this."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield seed >> 33


numbers = drawn(int(sys.argv[1]) + 1)
blocks = [bytes(next(numbers) % 400) for _ in range(4000)]
# Names that come later go where these were, and after them.
kept = [block for block in blocks if next(numbers) % 2]
del blocks
for _ in range(next(numbers) % 1000):
    # A look-up is what gives a type its version.
    hasattr(type("_", (), {}), "_")
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
