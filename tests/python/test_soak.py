"""Some random programs, and that the soak finds, and cuts down, what is wrong on purpose."""

import functools
import gc
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import cai_bridge
from cai_bridge._core import _settle

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.soak import __main__ as command
from tests.soak import steps as s
from tests.soak.crew import Crew
from tests.soak.device import machine, power, room, scenes
from tests.soak.device.handover import Bridge
from tests.soak.device.planted import FAULTS
from tests.soak.program import Program, World, listing
from tests.soak.shrink import Shrinking

ROOT = Path(__file__).parents[2]
# Several tests take the same programs, which cannot be changed.
program_of = functools.cache(scenes.program)


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
        program = program_of(seed)
        failure = machine.run(program, Bridge())
        assert failure is None, f"seed {seed}\n{s.listing(program)}\n{failure.text}"


# What draws some programs, of the device and of the libraries, and how it lists them.
DRAWN = {
    "device": "from tests.soak.device import scenes\nscenes.program(seed)",
    "libraries": (
        "from tests.soak.libraries.draw import Setup, program\nprogram(seed, Setup('handles'))"
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_seed_makes_the_same_program_in_every_process_and_another_one_another(name):
    importing, drawing = DRAWN[name].split("\n")
    code = f"{importing}\ndrawn = [repr({drawing}) for seed in range(20)]\nprint(drawn)"
    here = {}
    exec(code.rpartition("\n")[0], here)
    assert len(set(here["drawn"])) == 20
    for hash_seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == repr(here["drawn"])


def test_every_kind_of_step_is_drawn():
    drawn = {type(step) for seed in range(2000) for step in program_of(seed)}
    assert drawn == room.STEPS


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
        broken = power.broken(program_of(seed), call, seed)
        assert broken.result != "missed", f"seed {seed}: {broken.step}"
        kinds |= broken.kinds
    assert kinds >= LEFT_OUT[call]


def found(name, seeds=2000):
    """The first program that a planted fault makes fail as it is to, and how."""
    fault = FAULTS[name]
    with fault.planted():
        for seed in range(seeds):
            program = scenes.program(seed, fault.model())
            failure = machine.run(program, fault.model())
            if failure is not None and (fault.lies or failure.kind == fault.finds):
                return program, failure
    pytest.fail(f"none of {seeds} programs fails so")


@pytest.mark.some(5)
@pytest.mark.parametrize("name", sorted(FAULTS.keys() - {"promises contexts", "dies"}))
def test_a_planted_fault_is_found_and_cut_down(name):
    fault, (program, failure) = FAULTS[name], found(name)

    def attempt(programs):
        return [machine.run(one.steps, fault.model()) for one in programs]

    def is_right(program):
        return room.is_right(program, World("device", fault=name))

    drawn = Program("", (), 1, program)
    with fault.planted():
        cut, again = Shrinking(drawn, failure, is_right, attempt).run()
    listed = listing(cut)
    assert (again.kind, len(cut.steps) <= 8) == (fault.finds, True), listed
    if name == "promises waits":
        assert "dlpack-unordered" in listed


def test_what_is_used_after_its_context_has_ended_is_found():
    # As what depends on whether its address is in use again, so there is nothing to cut down by.
    program, _ = found("promises contexts")
    assert "reset_device" in s.listing(program)


def run(capsys, *words):
    """Run the command; its exit status, and what it prints."""
    return command.main(["--jobs", "2", *words]), capsys.readouterr().out


def test_the_command_tells_what_ran(capsys):
    status, out = run(capsys, "--programs", "60", "--seed", "7")
    assert status == 0
    assert out.splitlines()[-1].startswith("device: 60 programs of ")
    assert "60 right, 0 wrong, 0 died, 0 hung, 0 errors" in out


def test_the_command_shows_what_fails_cut_down_and_replays_it(capsys):
    planted = ("--plant", "takes writing for granted")
    status, out = run(capsys, *planted, "--programs", "250", "--stop-after", "1")
    assert status == 1
    replay = next(one for one in out.splitlines() if one.startswith("replay it with: "))
    words = shlex.split(replay.partition(": ")[2])
    assert words[:3] == ["python", "-m", "tests.soak"]
    status, out = run(capsys, *words[3:])
    assert status == 1
    assert "; the model (" in out
    assert out.splitlines()[-1].startswith("replay it with: ")


def test_the_command_has_the_bridge_know_no_library():
    # In a process of its own: nobody is known there from then on.
    words = [sys.executable, "-m", "tests.soak", "--strangers", "--programs", "130", "--jobs", "2"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "130 right, 0 wrong" in ran.stdout


def test_the_command_leaves_orders_out(capsys):
    status, out = run(capsys, "--break", "cuEventRecord", "--programs", "40")
    assert status == 0
    assert "cuEventRecord: found: " in out


def test_a_program_that_dies_takes_no_other_along():
    with Crew(World("device", fault="dies"), 2, 60.0) as crew:
        outcomes = list(crew.run([crew.task(seed=0, count=40)]))
    assert sorted(one.seed for one in outcomes) == list(range(40))
    died = [one for one in outcomes if one.outcome == "died"]
    assert 0 < len(died) < 40
    assert "SIGSEGV" in died[0].text
    assert "Fatal Python error" in died[0].text
    assert died[0].at is not None
    assert {one.outcome for one in outcomes} == {"right", "died"}


def test_a_listing_reads_as_the_python_that_it_stands_for():
    program = (
        s.NewStream("s1", "cuda", "non_blocking"),
        s.NewArray("x2", 2, ("exchange",), stream="s1", memory="pool"),
        s.ToCai("v3", "x2", "L0.handle", current="s1"),
        s.Consume("p4", "v3", "cai-waits", "L0"),
    )
    assert machine.run((*program, s.Sync(None)), Bridge()) is None
    assert s.listing(program).splitlines() == [
        "with simulated_cuda(devices=2) as cuda:",
        "    s1 = cuda.stream('s1', device=0, blocking=False)",
        "    x2 = cuda.array(fill=2, shape=(6,), speaks='exchange', stream=s1, memory='pool')",
        "    with cuda.current_stream(s1): v3 = to_cai(x2, stream=L0.handle)",
        "    p4 = cuda.consumer('cai-waits', L0).read(v3)",
    ]
