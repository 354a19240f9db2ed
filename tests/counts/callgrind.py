"""Reads what callgrind wrote down of each row."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass

NAMED = re.compile(r"\((\d+)\)(?: (.*))?")
# What the bridge's own library is called in a path.
OURS = "_core"


# The bytes that code is loaded by.
LINE, PAGE = 64, 4096


@dataclass
class Counted:
    """What a row costs, of all its rounds together."""

    instructions: int
    # The instructions that run in most rounds: addresses in each library.
    addresses: dict[str, set[int]]
    # The bridge's allocations on Rust's heap.
    allocations: int
    # The driver's entry points, by name.
    driver: Counter[str]
    # Functions of Python's C API that the bridge called and that may run Python code, by name.
    python: Counter[str]
    # How often the interpreter's lock was let go.
    releases: int
    # The instructions by whose they are.
    parts: Counter[str]

    def code(self, size, own):
        """Count the blocks of `size` bytes that the instructions of a round are in.

        On average over all places where a library's code may begin: a line elsewhere moves it.
        """
        blocks = 0.0
        for library, addresses in self.addresses.items():
            if OURS in library or not own:
                gaps = itertools.pairwise(sorted(addresses))
                blocks += 1 + sum(min(after - at, size) for at, after in gaps) / size
        return round(blocks, 1)


PYTHON = re.compile(
    r"PyObject_(Call|Vectorcall|GetAttr|SetAttr|IsTrue|GetItem|RichCompare|IsInstance)|PyImport_"
)
HEAP = {"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"}
# Whose code a library is; anything else is Python's.
PARTS = {OURS: "bridge", "libcuda": "driver", "fake_": "libraries", "libc.": "libc", "ld-": "libc"}


@functools.cache
def part(library, function):
    """Tell whose instructions those of a function are."""
    name = library.rpartition("/")[2]
    found = next((one for begin, one in PARTS.items() if name.startswith(begin)), "Python")
    heaps = function in HEAP or function.startswith(("free", "_int_", "unlink_chunk"))
    return "allocations" if found == "libc" and heaps else found


class Names:
    """Callgrind's abbreviations: a number stands for the name that it was given first."""

    def __init__(self):
        self.known: dict[str, str] = {}

    def of(self, text):
        match = NAMED.match(text)
        if match is None:
            return text
        number, name = match.groups()
        if name:
            self.known[number] = name
        return self.known.get(number, "")


def read(file, rounds):
    """Read what `rounds` rounds cost."""
    functions, objects = Names(), Names()
    counted = Counted(0, {}, 0, Counter(), Counter(), 0, Counter())
    runs = defaultdict(Counter)
    library, function, callee, is_call = "", "", "", False
    for line in file.read_text(errors="replace").splitlines():
        if line.startswith("0x"):
            # After a call stands what the callee cost.
            if not is_call:
                at, cost = line.split()
                runs[library][int(at, 16)] += int(cost)
                counted.parts[part(library, function)] += int(cost)
            is_call = False
            continue
        key, _, rest = line.partition("=")
        match key:
            case "ob":
                library = objects.of(rest)
            case "cob":
                objects.of(rest)
            case "fn":
                function = functions.of(rest).split("'")[0]
            case "cfn":
                callee = functions.of(rest).split("'")[0]
            case "calls":
                note(counted, callee, int(rest.split()[0]), OURS in library)
                is_call = True
            case _ if line.startswith("totals:"):
                counted.instructions = int(line.split()[1])
    for library, costs in runs.items():
        if often := {at for at, cost in costs.items() if cost > rounds // 2}:
            counted.addresses[library] = often
    return counted


def note(counted, callee, calls, ours):
    if callee == "PyEval_SaveThread":
        counted.releases += calls
    if callee.startswith("cu") and callee[2:3].isupper():
        counted.driver[callee] += calls
    if ours and callee in HEAP:
        counted.allocations += calls
    if ours and PYTHON.match(callee):
        counted.python[callee] += calls
