"""`cai-bridge perturb` over the real libraries: racy programs differ, and right ones do not.

The programs are in perturb_programs/. PERTURB_SEEDS is how many seeds the right ones run under; by
default as many as their streams need. Each test runs a program several times, for 5 to 9 s each:
run them in processes of pytest-xdist.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from typing import Any

import pytest

from cai_bridge._cli.perturbed import LIBRARY

from . import perturb_judged

PROGRAMS_OF = {
    # Where the host is early, naming takes many runs: these begin first.
    "torch": (
        *("numpy_on_pinned", "torch_nccl", "torch_record_stream", "torch_side_stream"),
        "torch_pinned_reuse",
    ),
    "cupy": ("cupy_early_event", "cupy_graph", "cupy_pool"),
    "torch triton": ("torch_tensor_map",),
    "cupy torch": ("cupy_to_torch", "torch_compiled", "torch_freed", "torch_to_cupy"),
    "cupy jax": ("cupy_to_jax", "jax_jit", "jax_to_cupy"),
    "numba torch": ("numba_to_torch", "torch_to_numba"),
    "torch warp": ("warp_to_torch",),
}
"""The programs by the libraries that they need."""
NEEDS = {one: needs.split() for needs, programs in PROGRAMS_OF.items() for one in programs}

RUNS = 3
pytestmark = [
    pytest.mark.skipif(not LIBRARY.exists(), reason="make perturb builds the library"),
    pytest.mark.timeout(600),
    pytest.mark.programs,
]


def perturb(program: str, argument: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Run the command on one of the programs."""
    command = perturb_judged.command(program, argument, *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def line(name: str, found: dict[str, Any]) -> str:
    """Say what came of a program in one line."""
    seeds = [one for one in found["runs"] if one["run"].startswith("seed")]
    verdicts = [one["verdict"] for one in seeds]
    counts = {name: [one[name] for one in seeds] for name in ("seen", "gates", "opened", "failed")}
    seconds = [one["seconds"] for one in found["runs"]]
    return f"{name}: {verdicts} {counts} seconds {seconds}; {found['conclusion'][:300]}"


def need(program: str) -> None:
    for module in NEEDS[program]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize("program", NEEDS)
def test_a_racy_program_differs_within_the_covering_seeds(program, note):
    need(program)
    status, found = perturb(program, "racy")
    race = found["race"] or {"late": None, "early": None, "runs": 0, "advice": "not named"}
    sides = perturb_judged.sides(found)
    note(line(f"{program} racy", found))
    note(f"{program} racy: {sides} by {race['runs']} runs, {race['advice']}")
    note(f"{program} racy: {race}")
    assert status == 1, found
    assert "in its end" not in found["conclusion"], found
    assert perturb_judged.is_named(program, perturb_judged.marks(sides)), race


@pytest.mark.parametrize("program", NEEDS)
def test_a_right_program_stays_the_same(program, note):
    need(program)
    seeds = os.environ.get("PERTURB_SEEDS")
    status, found = perturb(program, "right", *(["--seeds", seeds] if seeds else []))
    note(line(f"{program} right", found))
    assert status == 0, found


@pytest.mark.parametrize("kind", ["plain", "prefetch"])
def test_a_training_loop_stays_the_same(kind, note):
    pytest.importorskip("torch")
    status, found = perturb("training", kind, "--seeds", os.environ.get("PERTURB_SEEDS", "4"))
    note(line(f"training {kind}", found))
    assert status == 0, found
    # A capture is left alone, and the launch of its graph is not.
    captured = [one["captured"] for one in found["runs"]]
    assert all(captured) == (kind == "prefetch"), found
    assert not any(one["failed"] for one in found["runs"]), found
