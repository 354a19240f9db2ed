"""Runs what the release build's profile is taken of (`make profile`).

    python -m tests.counts.training rows   over the driver of stubs: each counted row
    python -m tests.counts.training soak   on the simulated device: random programs of the soak
    python -m tests.counts.training strangers   the same where the bridge knows no library

Not the test suite: most of its calls are refused, and refusals would be laid out for speed.
"""

import gc
import sys
import tomllib
import warnings
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 2000
PROGRAMS = 300


def rows():
    sys.path.insert(0, str(HERE))
    import child

    table = tomllib.loads((HERE / "rows.toml").read_text())["row"]
    child.run(ROUNDS, [row["statement"] for row in table])


def soak(strangers):
    from ..soak.device import machine, room
    from ..soak.program import World

    warnings.simplefilter("ignore")
    # As the soak runs them: an array goes when its program lets go of it.
    gc.disable()
    gc.freeze()
    world = World("device", strangers=strangers)
    for seed in range(PROGRAMS):
        failure = machine.run(room.program(seed, world).steps, room.model(world))
        assert failure is None, f"program {seed}: {failure}"


if __name__ == "__main__":
    if sys.argv[1] == "rows":
        rows()
    else:
        soak(sys.argv[1] == "strangers")
