"""``python -m tests.fuzz --seconds 60``: draw programs for so long, and cut down what fails."""

import argparse
import random
import time

from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from .machine import Bridging, bounded


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    end, drawn = time.monotonic() + arguments.seconds, arguments.seed
    while time.monotonic() < end:
        print(f"seed {drawn}", flush=True)
        run_state_machine_as_test(seed(drawn)(Bridging), settings=bounded(20))
        drawn += 1


main()
