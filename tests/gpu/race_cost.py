"""`python -m tests.gpu.race_cost KIND SECONDS`: how much longer a training loop takes recorded.

Prints a line of JSON after each round, and begins none that would not end in time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from cai_bridge._cli import finding, perturbed, recorded
from cai_bridge._cli.perturbed import Program, Run

from .races_run import HERE

ROUNDS = 3


def measure(kind: str, seconds: float) -> None:
    """Print how much longer a training loop takes in each run of `races`, after each round."""
    ends = time.monotonic() + seconds
    program = Program((sys.executable, str(HERE / "training.py"), kind), timeout=60)
    inner: dict[str, list[float]] = {"own": [], "first": [], "second": []}
    whole: dict[str, list[float]] = {"own": [], "first": [], "second": []}

    def keep(name: str, run: Run) -> None:
        whole[name].append(run.seconds)
        times = [float(one.split()[1]) for one in run.lines if one.startswith("TIME")]
        inner[name] += times[:1]

    perturbed.run(program, "off")  # files are read for the first time
    forced = False
    for _ in range(ROUNDS):
        keep("own", perturbed.run(program, "off"))
        runs = finding.find(program, lambda _: None).runs
        keep("first", runs[0])
        if len(runs) > 1:
            keep("second", runs[-1])
        else:  # no launch has to be looked at
            forced = True
            keep("second", recorded.run(program, compared=[]))
        said = {
            name: {key: round(statistics.median(one), 4) for key, one in found.items() if one}
            for name, found in (("loop", inner), ("process", whole))
        }
        factors = {
            f"{name} x": {
                key: round(one / found["own"], 3) for key, one in found.items() if found.get("own")
            }
            for name, found in said.items()
        }
        rounds = len(whole["own"])
        verdict = ", ".join(f"{key} x {one:.2f}" for key, one in factors["loop x"].items())
        told = {"verdict": verdict, "rounds": rounds, "nothing looked at": forced}
        print(json.dumps(told | said | factors), flush=True)
        if time.monotonic() + 1.2 * sum(one[-1] for one in whole.values()) > ends:
            return


if __name__ == "__main__":
    measure(sys.argv[1], float(sys.argv[2]))
