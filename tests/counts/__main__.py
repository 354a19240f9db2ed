"""`python -m tests.counts`: what each conversion costs, beside the committed table.

    python -m tests.counts LIBRARIES PACKAGE [--seed SEED] [--write]

LIBRARIES is a folder with libcuda.so.1 (tests/fake_driver) and fake_libraries.abi3.so
(tests/fake_libraries), PACKAGE one with a cai_bridge that kept its symbols. Exits with 1 where a
row costs over 1 % more instructions or cache lines of code than tests/counts/table.toml says, over
1 % and a whole page more of pages, or more of anything else. `--write` writes the table anew. Each
row is counted in several processes, with objects at other addresses and in another order of the
rows, and the smallest is read: where two names meet in one slot of Python's cache of attributes,
each costs a search of the type and its bases. SEED is what addresses and orders are drawn from, and
does not matter.
"""

import argparse
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from .callgrind import LINE, PAGE, read

HERE = Path(__file__).parent
ROUNDS = 200
LAYOUTS = 5
TABLE = HERE / "table.toml"
# What hangs on the compiler, and what does not.
CODE = ("instructions", "lines", "pages", "own_lines", "own_pages")
CALLS = ("allocations", "python", "releases")
# More than this of the first is a row that grew. Less is the allocator's and the dict's luck.
SLACK = 0.01
# What glibc chooses functions by, where a processor has it.
CHOICES = ["AVX2", "AVX512F", "AVX_Fast_Unaligned_Load", "BMI2", "ERMS", "FSRM", "SSE4_2"]
HEAD = """\
# What each conversion costs, a call: instructions, the cache lines and pages that they are on, the
# same of the bridge's own; allocations of the bridge, calls of Python that may run anything, and
# calls of the driver, of which each is there for a reason:
#
# cuCtxGetCurrent         whether the right context is current, for each order
# cuCtxGetId              whether the context is still the one that an event or a stream was of
# cuEventRecord           an order, with cuStreamWaitEvent
# cuPointerGetAttributes  whose memory a dict's pointer is
# cuStreamGetCtx          whether a stream that was named is of the array's device
# cuStreamGetFlags        whether the legacy default stream is ordered with it already
# cuStreamGetId           whether a handle is still of the stream that was named
# cuStreamIsCapturing     whether the order, or cuStreamGetId, would spoil a graph capture
#
# Each `release` of the interpreter's lock is around an order: a full queue blocks whoever queues.
#
# Written by `make counts WRITE=1`. Code is compared where these are the same:
"""


def table():
    return tomllib.loads((HERE / "rows.toml").read_text())["row"]


def rows():
    return [row["statement"] for row in table()]


def settings(libraries, package):
    """Give what a process that is counted runs with."""
    without = ",".join(f"-{name}" for name in CHOICES)
    # Symbols are bound at the start, and hashes are the same, in each run.
    return {
        "LD_BIND_NOW": "1",
        "LD_LIBRARY_PATH": str(libraries),
        "PYTHONHASHSEED": "0",
        # Its pools, which come and go at their edges, would cost a row or not by luck.
        "PYTHONMALLOC": "malloc",
        # The same of the C library, whose threads keep few blocks unless they are told.
        # Its functions for memory and strings are those of any processor.
        "GLIBC_TUNABLES": f"glibc.malloc.tcache_count=60000:glibc.cpu.hwcaps={without}",
        "PYTHONNOUSERSITE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (libraries, package))),
        "PATH": os.environ["PATH"],
    }


def count(libraries, package, seed):
    """Run all rows in one process, of which `seed` gives the order and the addresses."""
    statements = rows()
    random.Random(seed).shuffle(statements)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "callgrind"
        command = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={output}",
            "--dump-instr=yes",
            "--dump-line=no",
            "--compress-pos=no",
            "--zero-before=*counts_begin",
            "--dump-before=*counts_end",
            # The interpreter itself: a virtual environment's is a link, and takes longer to start.
            sys.executable,
            str(HERE / "layout.py"),
            str(seed),
            str(HERE / "child.py"),
            str(ROUNDS),
            *statements,
        ]
        done = subprocess.run(
            command, env=settings(libraries, package), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"counts: the rows did not run\n{done.stdout}{done.stderr}")
        # The child counts twice, a row of its own first.
        files = [Path(f"{output}.{2 * number + 4}") for number in range(len(statements))]
        return {row: line(read(file, ROUNDS)) for row, file in zip(statements, files, strict=True)}


def smallest(found):
    """Give the least of each count of a row."""
    names = {name for one in found for name in one["driver"]}
    driver = {name: min(one["driver"].get(name, 0) for one in found) for name in sorted(names)}
    least = {name: min(one[name] for one in found) for name in (*CODE, *CALLS)}
    least["parts"] = min(found, key=lambda one: one["instructions"])["parts"]
    return {**least, "driver": {name: calls for name, calls in driver.items() if calls}}


def line(counted):
    driver = {name: round(calls / ROUNDS) for name, calls in sorted(counted.driver.items())}
    return {
        "instructions": round(counted.instructions / ROUNDS),
        "lines": counted.code(LINE, own=False),
        "pages": counted.code(PAGE, own=False),
        "own_lines": counted.code(LINE, own=True),
        "own_pages": counted.code(PAGE, own=True),
        "allocations": round(counted.allocations / ROUNDS),
        "python": round(counted.python.total() / ROUNDS),
        "releases": round(counted.releases / ROUNDS),
        "driver": {name: calls for name, calls in driver.items() if calls},
        "parts": {name: round(cost / ROUNDS) for name, cost in counted.parts.most_common()},
    }


def versions():
    """Give what instructions depend on."""
    compiler = subprocess.run(["rustc", "-V"], capture_output=True, text=True, check=False).stdout
    return {
        "python": platform.python_version(),
        "rustc": compiler.strip(),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
    }


def text(found):
    like = ", ".join(f'{name} = "{what}"' for name, what in versions().items())
    lines = [f"{HEAD}versions = {{ {like} }}", ""]
    for row, costs in found.items():
        driver = ", ".join(f"{name} = {calls}" for name, calls in costs["driver"].items())
        counts = ", ".join(f"{name} = {costs[name]}" for name in (*CODE, *CALLS))
        lines.append(f'"{row}" = {{ {counts}, driver = {{{driver}}} }}')
    return "\n".join([*lines, ""])


def grown(known, costs, like=True):
    """Say what costs more than it is known to; `like` where code can be compared."""
    found = []
    limits = {name: known[name] * (1 + SLACK) for name in CODE} if like else {}
    # Code elsewhere moves functions apart, by less than a page.
    for name in limits.keys() & {"pages", "own_pages"}:
        limits[name] = max(limits[name], known[name] + 1)
    for name, limit in {**limits, **{name: known[name] for name in CALLS}}.items():
        if costs[name] > limit:
            found.append(f"{name} {known[name]} -> {costs[name]}")
    for name, calls in costs["driver"].items():
        if calls > known["driver"].get(name, 0):
            found.append(f"{name} {known['driver'].get(name, 0)} -> {calls}")
    return found


def show(row, costs, known):
    before = known["instructions"] if known else 0
    change = f"{100 * (costs['instructions'] / before - 1):+6.1f} %" if before else "    new"
    driver = sum(costs["driver"].values())
    print(
        f"{row:<42} {costs['instructions']:>8,} {change}  lines {costs['lines']:>6}"
        f" ({costs['own_lines']:>5})  pages {costs['pages']:>5} ({costs['own_pages']:>4})"
        f"  allocations {costs['allocations']:>2}  python {costs['python']:>3}"
        f"  driver {driver:>3}  releases {costs['releases']}"
    )


def aims(found):
    """Say whose the instructions are of each row that misses its aim."""
    lines = []
    for row in table():
        costs, aim = found[row["statement"]], row.get("aim")
        if aim and costs["instructions"] > aim:
            parts = ", ".join(f"{name} {cost:,}" for name, cost in costs["parts"].items())
            lines.append(f"{row['statement']}: {costs['instructions']:,}, aim {aim:,}: {parts}")
    return lines


def main():
    parser = argparse.ArgumentParser(prog="tests.counts", description=__doc__)
    parser.add_argument("libraries", type=Path)
    parser.add_argument("package", type=Path)
    parser.add_argument("--write", action="store_true", help="write the table anew")
    parser.add_argument("--seed", type=int, default=0, help="for orders and addresses")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("counts: valgrind is not installed, so nothing is counted")
        return 0
    libraries, package = options.libraries.resolve(), options.package.resolve()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        seeds = range(LAYOUTS * options.seed, LAYOUTS * (options.seed + 1))
        layouts = list(threads.map(partial(count, libraries, package), seeds))
    found = {row: smallest([layout[row] for layout in layouts]) for row in rows()}
    known = {} if options.write else tomllib.loads(TABLE.read_text())
    failed, like = [], options.write or known["versions"] == versions()
    if not like:
        print("code is not compared: the table is of", known["versions"])
    for row, costs in found.items():
        show(row, costs, known.get(row))
        if not options.write:
            more = grown(known[row], costs, like) if row in known else ["not in the table"]
            failed += [f"{row}: {one}" for one in more]
    print(*aims(found), sep="\n")
    if options.write:
        TABLE.write_text(text(found))
    for one in failed:
        print(f"grown: {one}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
