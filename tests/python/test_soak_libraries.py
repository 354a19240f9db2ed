"""The random programs of the GPU libraries, over stand-ins: what is wrong on purpose is found."""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.soak import __main__ as soak
from tests.soak import shrink
from tests.soak import steps as p
from tests.soak.crew import Crew, Outcome
from tests.soak.libraries import adapters, room
from tests.soak.libraries.adapters import FAULTS
from tests.soak.libraries.cases import LISTED, MAKE, READ, RIGHT, STREAMS, TAKE, VIEW, WRONG
from tests.soak.libraries.discipline import Discipline, expected, is_right
from tests.soak.libraries.draw import Setup, program
from tests.soak.libraries.handles import Unmet
from tests.soak.program import Program, Refused, World, listing

ROOT = Path(__file__).parents[2]
WORDS = (6, 8)
LIMIT_S = 30.0


def setup(manner="told", **wanted):
    return Setup(manner, words=WORDS, **wanted)


def ran(crew, count, **wanted):
    tasks = [crew.task(seed=seed, setup=setup(**wanted)) for seed in range(count)]
    return {outcome.number: outcome for outcome in crew.run(tasks)}


def run(capsys, *words):
    """Run the command, over stand-ins; its exit status, and what it prints."""
    jobs = ("--place", "simulated", "--jobs", "2", "--limit", str(LIMIT_S), "--shrink", "20")
    return soak.main([*jobs, *words]), capsys.readouterr().out


@pytest.mark.parametrize("manner", soak.MANNERS)
def test_drawn_programs_are_right_by_the_discipline_and_have_every_kind_of_step(manner):
    drawn = Counter()
    for seed in range(60):
        made = program(seed, setup(manner))
        expected(made)
        drawn.update(type(step) for step in made.steps)
    never = {p.Export} if manner == "unsaid" else set()
    assert set(drawn) == room.STEPS - never


def test_programs_are_drawn_over_the_libraries_that_are_there():
    for seed in range(40):
        made = program(seed, setup(libraries=("cupy", "tvm_ffi")))
        assert "cupy" in made.libraries
        assert {step.library_used() for step in made.steps} <= {None, "cupy", "tvm_ffi"}


def test_streams_are_named_in_the_programs_manner():
    given = {manner: Counter() for manner in soak.MANNERS}
    for manner, seen in given.items():
        for seed in range(20):
            for step in program(seed, setup(manner)).steps:
                if isinstance(step, p.ToCai | p.FromCai | p.Export | p.Release):
                    bare = step.stream is not None and step.stream.endswith(".handle")
                    seen["none" if step.stream is None else "handle" if bare else "object"] += 1
    assert given["told"].keys() == {"none", "object"}
    assert given["handles"].keys() == {"none", "handle"}
    assert given["unsaid"].keys() == {"none"}


def taken(steps, manner="told", threads=1):
    return is_right(Program(manner, p.LIBRARIES, threads, (*STREAMS, *steps)))


@pytest.mark.parametrize("name", RIGHT)
def test_the_discipline_takes(name):
    assert taken(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_the_discipline_refuses(name):
    *before, last = WRONG[name]
    assert taken(before)
    assert not taken((*before, last))


def test_a_bare_handle_that_nobody_vouches_for_is_done_before_it_ends():
    view = replace(VIEW, stream="c2.handle")
    ending = (MAKE, view, TAKE, READ, p.Drop("y3"), p.Drop("v2"))
    assert not taken(ending, "handles")
    assert taken((MAKE, replace(view, current="c2"), *ending[2:]), "handles")
    assert taken((*ending[:4], p.Sync(), *ending[4:]), "handles")
    assert taken((*ending[:4], p.Enter("c2"), *ending[4:]), "handles")


def test_what_another_thread_made_is_used_after_the_two_have_met():
    steps = (*STREAMS, MAKE)
    account = Discipline("told", 2)
    for step in steps:
        account.take(step)
    with pytest.raises(Unmet):
        account.take(replace(VIEW, thread=1))
    account.take(p.Meet(0, thread=1))
    account.take(replace(VIEW, thread=1))
    with pytest.raises(Refused):
        account.take(p.Drop("x1"))


@pytest.mark.parametrize("manner", soak.MANNERS)
def test_right_programs_are_right(manner):
    with Crew(World("simulated"), 2, LIMIT_S) as crew:
        outcomes = ran(crew, 12, manner=manner)
    assert {one.outcome for one in outcomes.values()} == {"right"}
    others = sum((one.counts["others"] for one in outcomes.values()), Counter())
    assert others["reads compared"] > 100
    assert others["blocks that came again at once"] > 10


@pytest.mark.parametrize("fault", ["hurried", "unordered"])
def test_a_planted_fault_is_found_and_cut_down(fault):
    with Crew(World("simulated", fault=fault), 4, LIMIT_S) as crew:
        outcomes = ran(crew, 12)
        wrong = [one for one in outcomes.values() if one.outcome == "wrong"]
        assert wrong
        drawn = program(wrong[0].number - 1, setup())
        cut, failure = shrink.cut_down(crew, drawn, wrong[0], 60.0)
    assert failure.outcome == "wrong"
    assert len(cut.steps) * 10 <= len(drawn.steps), listing(cut)
    assert "is of:" in failure.text


@pytest.mark.parametrize(
    ("fault", "outcome", "limit", "said"),
    [
        ("hang", "hung", 6.0, ["simulated.py"]),
        ("raise", "error", LIMIT_S, ["a planted fault", "in step"]),
    ],
)
def test_a_child_that_hangs_or_raises_is_told_where(fault, outcome, limit, said):
    with Crew(World("simulated", fault=fault), 4, limit) as crew:
        outcomes = ran(crew, 6 if fault == "raise" else 4)
    found = [one for one in outcomes.values() if one.outcome == outcome]
    assert found
    assert all(part in found[0].text for part in said)
    assert fault != "raise" or found[0].kind == "error BufferError"


def test_a_zygote_that_is_gone_is_told(monkeypatch):
    with Crew(World("simulated"), 1, LIMIT_S) as crew:
        crew._process.kill()
        crew._process.join()
        with pytest.raises((RuntimeError, BrokenPipeError)):
            list(crew.run([crew.task(seed=0, setup=setup())]))


def test_a_library_that_is_missing_is_left_out_and_told(monkeypatch):
    def load(name):
        if name != "tvm_ffi":
            raise ImportError(f"no {name}")

    monkeypatch.setattr(adapters, "load", load)
    ready = adapters.imported([])
    assert ready.there == ["tvm_ffi"]
    assert ready.missing["torch"] == "ImportError: no torch"


def test_a_library_that_starts_cuda_when_imported_is_named(monkeypatch):
    monkeypatch.setattr(adapters, "load", lambda name: None)
    monkeypatch.setattr(adapters, "cuda_is_started", lambda: True)
    monkeypatch.setattr(adapters.importlib, "import_module", lambda name: None)
    assert adapters.imported([]).started_by == "torch"
    assert adapters.imported(["torch", "cupy"]).started_by == "numba"


def test_the_command_tells_totals_in_words_and_as_json(capsys, tmp_path):
    path = tmp_path / "soak.json"
    status, out = run(capsys, "--programs", "6", "--json", str(path))
    assert status == 0
    assert out.splitlines()[-1].startswith("told: 6 programs of ")
    assert "6 right, 0 wrong, 0 died, 0 hung, 0 errors (steps: " in out
    said = json.loads(path.read_text())
    assert (said["manner"], said["programs"], said["failures"]) == ("told", 6, [])
    assert said["outcomes"] == {"right": 6, "wrong": 0, "died": 0, "hung": 0, "error": 0}
    assert sum(said["counts"]["routes"].values()) == said["counts"]["others"]["hand-overs"]
    drawn = Setup("told", words=room.WORDS_OF["simulated"])
    assert said["steps"] == sum(len(program(seed, drawn).steps) for seed in range(6))


def test_the_command_fails_and_shows_a_failure_with_its_replay(capsys, tmp_path):
    path = tmp_path / "soak.json"
    words = ("--plant", "hurried", "--programs", "8", "--stop-after", "1", "--json", str(path))
    status, out = run(capsys, *words)
    assert status == 1
    assert "numpy.from_dlpack(" in out
    replayed = next(line for line in out.splitlines() if line.startswith("replay it with: "))
    failure = json.loads(path.read_text())["failures"][0]
    assert failure["replay"] in replayed
    assert failure["outcome"] == "wrong"
    assert "listing" in failure
    seed = str(failure["seed"])
    status, out = run(capsys, "--plant", "hurried", "--replay", seed)
    assert status == 1
    assert f"program {seed} is wrong" in out


@pytest.mark.parametrize("fault", ["", *FAULTS["simulated"][:5]])
def test_a_fault_of_the_bridge_is_noticed_between_stand_ins(fault):
    manner = "unsaid" if fault == "called" else "told"
    with Crew(World("simulated", fault=fault), 2, 60.0) as crew:
        drawn = Setup(manner, words=(6, 8), threads=1)
        tasks = (crew.task(seed=seed, setup=drawn) for seed in range(60 if fault else 12))
        outcomes = set()
        for one in crew.run(tasks):
            outcomes.add(one.outcome)
            if one.outcome == "wrong":
                break
    assert ("wrong" in outcomes) == bool(fault)
    assert fault or outcomes == {"right"}


def test_the_control_is_reported_and_does_not_fail(capsys):
    status, out = run(capsys, "--control", "--plant", "hurried", "--programs", "8")
    assert status == 0
    assert "told, control: 8 programs" in out
    wrong = int(out.splitlines()[-1].removeprefix("the control: ").split()[0])
    assert wrong > 0


def test_totals_are_written_while_a_run_goes_on(tmp_path):
    path = tmp_path / "soak.json"
    totals = soak.Totals({"manner": "told", "control": False}, path)
    totals.add(Outcome(1, "right", steps=7, counts={"routes": Counter(a=2)}))
    totals.fail(Outcome(2, "died", "ended by SIGSEGV", seed=3), "python -m tests.soak --replay 3")
    said = json.loads(path.read_text())
    assert (said["programs"], said["steps"], said["counts"]["routes"]) == (1, 7, {"a": 2})
    assert said["failures"][0]["text"] == "ended by SIGSEGV"


def test_without_a_gpu_the_command_says_so(capsys, monkeypatch):
    monkeypatch.setattr(room, "why_no_gpu", lambda: "no CUDA device")
    assert soak.main(["--place", "gpu", "--programs", "1"]) == 2
    assert "no CUDA device; the places device and simulated need none" in capsys.readouterr().err


def test_a_listing_reads_as_the_python_that_it_stands_for():
    listed = listing(Program("handles", ("torch", "cupy"), 1, tuple(LISTED)))
    assert [line[6:] for line in listed.splitlines()[1:]] == list(LISTED.values())
