"""Some random programs, and that the soak finds, and cuts down, what is wrong on purpose."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings

import pytest

import cai_bridge
from cai_bridge._core import _settle
from soak import execute, generate, power, shrink
from soak import steps as s
from soak.bridge import Bridge
from soak.planted import FAULTS


@pytest.fixture(autouse=True)
def _collected_where_a_program_says_so():
    """As the command does it: cycles are the programs' own.

    No end of theirs may be left over, for other tests to meet.
    """
    gc.collect()
    gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cai_bridge.HostSyncWarning)
        yield
    gc.enable()
    assert _settle() == 0


def test_random_programs_do_what_the_readme_promises():
    for seed in range(800):
        program = generate.program(seed)
        failure = execute.run(program, Bridge())
        assert failure is None, f"seed {seed}\n{s.listing(program)}\n{failure.text}"


def test_the_same_seed_makes_the_same_program_and_another_one_another():
    programs = [generate.program(seed) for seed in range(20)]
    assert programs == [generate.program(seed) for seed in range(20)]
    assert len(set(programs)) == 20


@pytest.mark.parametrize("salt", ["1", "2"])
def test_a_seed_makes_the_same_program_in_every_process(salt):
    drawn = "\n".join(s.listing(generate.program(seed)) for seed in range(200))
    code = (
        "from soak import generate, steps\n"
        "for seed in range(200): print(steps.listing(generate.program(seed)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert there.stdout.rstrip("\n") == drawn


def test_every_kind_of_step_is_drawn():
    drawn = {type(step) for seed in range(300) for step in generate.program(seed)}
    assert drawn == set(s.Step.__subclasses__())


# Of the orders that are left out, these kinds have to be among those that are found.
EDGES = {"Consume", "Copy", "Drop", "Export", "Release", "ToCai"}
EDGES |= {"another thread", "nested", "two GPUs", "unnamed"}
LEFT_OUT = {
    "cuEventRecord": EDGES,
    "cuStreamWaitEvent": EDGES | {"capture"},
    "cuModuleUnload": {"Drop", "FromCai", "Release", "ToCai", "another thread"},
}


@pytest.mark.parametrize("call", power.CALLS)
def test_an_order_that_is_left_out_is_reported(call):
    kinds = set()
    for seed in range(800):
        broken = power.broken(generate.program(seed), call, seed)
        assert broken.result != "missed", f"seed {seed}: {broken.step}"
        kinds |= broken.kinds
    assert kinds >= LEFT_OUT[call]


def found(name, seeds=2000):
    """The first program that a planted fault makes fail as it is to, how, and the model."""
    kind = FAULTS[name].finds
    with FAULTS[name].planted() as model:
        for seed in range(seeds):
            program = generate.program(seed, model())
            failure = execute.run(program, model())
            if failure is not None and (model.lies or failure.kind == kind):
                return program, failure, model
    pytest.fail(f"none of {seeds} programs fails so")


@pytest.mark.parametrize("name", [name for name in FAULTS if name != "promises contexts"])
def test_a_planted_fault_is_found_and_cut_down(name):
    kind, (program, failure, model) = FAULTS[name].finds, found(name)
    with FAULTS[name].planted():
        cut, again = shrink.shrink(program, failure, shrink.fails_with(model))
    assert (again.kind, len(cut) <= 8) == (kind, True), s.listing(cut)
    if name == "promises waits":
        assert "dlpack-unordered" in s.listing(cut)


def test_what_is_used_after_its_context_has_ended_is_found():
    # As what depends on whether its address is in use again, so there is nothing to cut down by.
    program, _, _ = found("promises contexts")
    assert "reset_device" in s.listing(program)


def test_a_listing_reads_as_the_python_that_it_stands_for():
    program = (
        s.NewStream("s1", 0, False),
        s.NewArray("x2", 2, ("exchange",), stream="s1", memory="pool"),
        s.ToCai("v3", "x2", "L0.handle", current="s1"),
        s.Consume("p4", "v3", "cai-waits", "L0"),
    )
    assert execute.run((*program, s.Sync(None)), Bridge()) is None
    assert s.listing(program).splitlines() == [
        "with simulated_cuda(devices=2) as cuda:",
        "    s1 = cuda.stream('s1', device=0, blocking=False)",
        "    x2 = cuda.array(fill=2, shape=(6,), speaks='exchange', stream=s1, memory='pool')",
        "    with cuda.current_stream(s1): v3 = to_cai(x2, stream=L0.handle)",
        "    p4 = cuda.consumer('cai-waits', L0).read(v3)",
    ]
