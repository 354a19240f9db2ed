"""`python -m tests.mutants.layer`: mistakes all over the Rust sources, and who notices them.

    python -m tests.mutants.layer [--draw N] [--seed N] [--only REGEX] [--shard I/N] [--all]
        [--of TESTS] [--rare N] [--without TESTS] [--cases N] [--log FILE] [--again]

`sites` has the rules. All mistakes are in one build, of which each run makes one. The tests run
once without any, which notes the places that each test reaches; then for each mistake those that
reach it, the quickest first, until one fails. `--all` goes on to the other files, for the table of
mistakes and files. Without more said the mistakes are those of drawn.txt; `--draw` draws others,
the same share of each folder's. What no test notices is printed; rust_argued.toml says of some why
they are no mistakes, and which want a test. Exits with 1 where one is left.

Whether tests can go: `--again --of TESTS --without TESTS`, by their names as pytest has them. The
mistakes that these notice are judged without them: one that is left was noticed by them alone.
`--rare 8` looks at what few other files reach.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from .py_layer import LEFT_OUT
from .sites import Site, instrumented
from .zygote import Verdict, Zygote

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COPY = ROOT / "target" / "mutants_layer"
NOT_CORE = re.compile(
    r"test_(adapters|cli|commits|conformance|counts|describe|docs|doctor|examples|flat|fuzz|gpu_runs"
    r"|imports|isolated|lab|matrix|mutants|nanobind|package|page|perturb|planted|program|races"
    r"|warp_program|pytest_plugin|reports|rust|memory_class|c_interface|said|simulated|soak"
    r"|stand_ins|systems|equivalence)"
)
"""The tests of other things than the core, or that build it for themselves."""
Reached = dict[str, dict[str, Any]]
Choose = Callable[[Site], tuple[list[str], float]]


def core_tests() -> list[str]:
    """List the files of the core's tests."""
    found = sorted((ROOT / "tests" / "python").rglob("test_*.py"))
    return [str(one) for one in found if not NOT_CORE.match(one.name)]


def cargo(command: str, tree: Path, *more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1", "PYO3_PYTHON": sys.executable}
    env["CARGO_TARGET_DIR"] = str(ROOT / "target")
    said = ["cargo", command, "--quiet", "--lib", "--features", "wheel", *more]
    said += ["--", "--cap-lints", "allow"]
    return subprocess.run(said, cwd=tree, env=env, check=False, capture_output=True, text=True)


def built() -> list[Site]:
    """Build a copy of the tree with all mistakes in it, but for those that do not compile."""
    tree, without = COPY / "tree", set[str]()
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT, symlinks=True)
    shutil.copy(HERE / "mutant.rs", tree / "src")
    lib = tree / "src" / "lib.rs"
    lib.write_text(lib.read_text() + "\npub(crate) mod mutant;\n")
    for _ in range(12):
        sites, files = instrumented(ROOT, without)
        for file, text in files.items():
            if (tree / file).read_text() != text:
                (tree / file).write_text(text)
        checked = cargo("rustc", tree, "--profile", "check", "--message-format", "short")
        refused = set(re.findall(r"^(src/\S+?:\d+):\d+: error", checked.stderr, re.MULTILINE))
        if not refused - without:
            break
        without |= refused
    done = cargo("rustc", tree, "--crate-type", "cdylib")
    if done.returncode:
        raise SystemExit(f"it does not build:\n{done.stderr[-3000:]}")
    extension = tree / "python" / "cai_bridge" / "_core.abi3.so"
    shutil.copy2(ROOT / "target" / "debug" / "libcai_bridge.so", extension)
    print(f"{len(sites)} places; {len(without)} lines cannot be changed so", flush=True)
    return sites


def reached(sites: list[Site], jobs: int) -> Reached:
    """Run the core's tests without a mistake; tell which places each test reaches."""
    output = COPY / "reached"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(COPY / "tree" / "python"), str(ROOT)]),
        "CAI_BRIDGE_SITES_OUTPUT": str(output),
        "CAI_BRIDGE_SITES_COUNT": str(len(sites) + 1),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.reached_sites"]
    command += ["-p", "no:cacheprovider", "--every", "-n", str(jobs), "--dist", "loadfile"]
    command += core_tests()
    with (COPY / "tests.txt").open("w") as said:
        subprocess.run(command, cwd=ROOT, env=env, check=False, stdout=said, stderr=said)
    tests: Reached = {}
    for file in output.glob("*.json"):
        tests |= json.loads(file.read_text())
    return {name: one for name, one in tests.items() if one["passed"]}


def argued() -> dict[str, str]:
    """Read which mistakes are none, or are not noticed yet, and say which: "argued" or "open"."""
    told = tomllib.loads((HERE / "rust_argued.toml").read_text())
    found = {name: "argued" for row in told["reason"] for name in row["mistakes"]}
    return found | dict.fromkeys(told["open"], "open")


def drawn(sites: list[Site], asked: argparse.Namespace) -> list[Site]:
    """Choose mistakes: those that are listed, or others, the same share of each folder's."""
    chosen = [one for one in sites if re.search(asked.only, one.name)]
    if not (asked.only or asked.draw or asked.of):
        names = (HERE / "drawn.txt").read_text().splitlines()
        chosen = [one for one in sites if one.name in names]
        gone = [*set(names).difference(one.name for one in chosen)]
        print("".join(f"its place is gone: {name}\n" for name in sorted(gone)), end="")
    if asked.draw and asked.draw < len(chosen):
        share, areas = asked.draw / len(chosen), defaultdict[str, list[Site]](list)
        for one in chosen:
            areas[one.area].append(one)
        draw = random.Random(asked.seed)
        chosen = [
            one
            for some in areas.values()
            for one in draw.sample(some, min(len(some), max(3, round(share * len(some)))))
        ]
    at, of = map(int, asked.shard.split("/"))
    return sorted(chosen, key=lambda one: one.number)[at - 1 :: of]


def places_of(tests: Reached, of: str, rare: int) -> set[int]:
    """List the places that such tests reach, and other tests of at most so many files."""
    own, mine, others = re.compile(of), set[int](), defaultdict[int, set[str]](set)
    for name, one in tests.items():
        if own.search(name):
            mine.update(one["sites"])
        else:
            for number in one["sites"]:
                others[number].add(name.partition("::")[0])
    return {number for number in mine if len(others[number]) <= rare}


def chooser(tests: Reached, cases: int, *, every: bool) -> Choose:
    """Choose the tests that reach a mistake, quick files first: some cases, then the others.

    For `every` file no others.
    """
    reaching = defaultdict[int, list[str]](list)
    for name in sorted(tests, key=lambda name: tests[name]["seconds"]):
        for number in tests[name]["sites"]:
            reaching[number].append(name)

    def by_file(names: list[str]) -> list[str]:
        files = defaultdict[str, list[str]](list)
        for name in names:
            files[name.partition("::")[0]].append(name)
        cost = {
            file: sum(tests[name]["seconds"] for name in some) / len(some)
            for file, some in files.items()
        }
        return [name for file in sorted(files, key=cost.__getitem__) for name in files[file]]

    def choose(site: Site) -> tuple[list[str], float]:
        of_test, first, others = Counter[str](), list[str](), list[str]()
        for name in reaching[site.number]:
            of_test[name.partition("[")[0]] += 1
            is_one = of_test[name.partition("[")[0]] <= cases
            (first if is_one else others).append(name)
        names = by_file(first) + ([] if every else by_file(others))
        return names, sum(tests[name]["seconds"] for name in names)

    return choose


def file_of(noticed: str) -> str:
    """Tell the file of a test that failed, or what else happened."""
    found = re.search(r"test_\w+\.py", noticed)
    return found[0] if found else noticed


def prepared(asked: argparse.Namespace) -> tuple[list[Site], Reached]:
    """Build all mistakes, and see what the tests reach; or take what an earlier run made."""
    kept = COPY / "reached.json"
    if asked.again and kept.exists():
        made = json.loads(kept.read_text())
        return [Site(**one) for one in made["sites"]], made["tests"]
    sites = built()
    tests = reached(sites, asked.jobs)
    kept.write_text(json.dumps({"sites": [asdict(one) for one in sites], "tests": tests}))
    return sites, tests


class Table:
    """What came of the mistakes: of each folder, and which files noticed how many."""

    def __init__(self, known: dict[str, str], log: Path | None) -> None:
        self.known, self.log = known, log
        self.tally, self.files = Counter[tuple[str, str]](), Counter[str]()

    def add(self, verdict: Verdict) -> None:
        """Add a mistake, and print it."""
        site, by = verdict.site, sorted({file_of(one) for one in verdict.failed})
        outcome = "noticed" if by else self.known.get(site.name, "left")
        self.tally[site.area, outcome] += 1
        self.files.update(by)
        said = f"noticed by {', '.join(by)}" if by else outcome.upper()
        print(f"{site.name} [line {site.line}]: {said}", flush=True)
        if self.log:
            with self.log.open("a") as log:
                print(json.dumps([site.name, site.line, outcome, by, verdict.tests]), file=log)

    def report(self) -> int:
        """Print the figures."""
        outcomes = ("noticed", "argued", "open", "left")
        print("".join(f"{one:>8}" for one in outcomes))
        for area in sorted({area for area, _ in self.tally}):
            print("".join(f"{self.tally[area, one]:>8}" for one in outcomes), area)
        every = [sum(n for (_, one), n in self.tally.items() if one == of) for of in outcomes]
        print("".join(f"{one:>8}" for one in every), "all")
        print(*(f"{count:>8} {file}" for file, count in self.files.most_common()), sep="\n")
        return int(every[-1] > 0)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.layer", description=__doc__)
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="so many mistakes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="REGEX", help="names of mistakes")
    parser.add_argument("--of", default="", metavar="REGEX", help="that such tests reach")
    parser.add_argument(
        "--rare", type=int, default=1000, metavar="N", help="and so many other files"
    )
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--all", action="store_true", help="go on to the other files")
    parser.add_argument("--cases", type=int, default=2, metavar="N", help="of a test, at first")
    parser.add_argument("--without", default="", metavar="REGEX", help="leave tests out")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--log", type=Path, metavar="FILE", help="gets a line a mistake")
    parser.add_argument("--again", action="store_true", help="with an earlier run's build")
    asked = parser.parse_args()
    sites, tests = prepared(asked)
    by_place = places_of(tests, asked.of, asked.rare)
    sys.path.insert(0, str(COPY / "tree" / "python"))
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:1])
    chosen = drawn([one for one in sites if one.number in by_place], asked)
    print(f"{len(sites)} mistakes, {len(by_place)} reached by {len(tests)} tests", flush=True)
    table = Table(argued(), asked.log)

    def judged(chosen: list[Site], tests: Reached, tell: Callable[[Verdict], None]) -> None:
        choose = chooser(tests, asked.cases, every=asked.all)
        zygote = Zygote(chosen, choose, tell, asked.jobs, asked.all)
        options = ["-q", "-s", "-p", "no:cacheprovider", "--every", "--timeout", "60"]
        pytest.main([*options, *core_tests()], plugins=[zygote])

    if asked.without:
        out, noticed = re.compile(asked.without), list[Site]()
        going = {name: one for name, one in tests.items() if out.search(name)}
        judged(chosen, going, lambda one: noticed.append(one.site) if one.failed else None)
        chosen, tests = noticed, {name: tests[name] for name in tests.keys() - going.keys()}
        print(f"{len(going)} tests notice {len(chosen)} mistakes", flush=True)
    judged(chosen, tests, table.add)
    return table.report()


if __name__ == "__main__":
    sys.exit(main())
