"""That a long program does not grow: rounds of each conversion, and the resident memory after each.

`make flat` runs a million rounds each on the simulated device, `tests/python/test_flat.py` fewer.
What grows is named with its bytes a round, and the exit status is 1.
"""

import argparse
import gc
import os
import sys
from pathlib import Path
from time import perf_counter

from cai_bridge import _core, from_cai, to_cai
from cai_bridge.testing import simulated_cuda

# Until a conversion's own caches and the allocator's arenas are as large as they get.
WARM_UP = 5_000
# The log of driver calls keeps its last 65,536, which other conversions' calls need not resemble:
# it is emptied now and then, and looked at by itself once it is full.
LOG = "the log of driver calls"
LOG_WARM_UP = 70_000
# What an allocator may add whatever the program does: a few arenas' pages.
ALLOWED = 512 * 1024


def resident():
    """The process's resident memory, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def refused(call, error):
    try:
        call()
    except error:
        return
    raise AssertionError("taken")


def conversions(cuda):
    """A round of each kind, by name."""
    mine, theirs = cuda.stream("mine"), cuda.stream("theirs")
    arrays = {
        speaks: cuda.array([1.0] * 4, speaks=speaks, stream=theirs)
        for speaks in ("exchange", "dlpack", "dlpack-legacy", "dlpack-bare", "cai", "cai2")
    }
    table, method, cai = arrays["exchange"], arrays["dlpack"], arrays["cai"]
    view, dict_view = from_cai(cai), to_cai(table)

    def release():
        with to_cai(table, stream=mine), from_cai(cai) as one:
            one.release()

    def cycle():
        pair = [to_cai(table), from_cai(cai)]
        pair.append(pair)

    return {
        # First: what others have freed would hide that it grows.
        LOG: cuda.synchronize,
        "to_cai and the dict": lambda: to_cai(table).__cuda_array_interface__,
        "to_cai on a stream": lambda: to_cai(table, stream=mine),
        "to_cai of a method": lambda: to_cai(method, stream=mine),
        "to_cai of a legacy capsule": lambda: to_cai(arrays["dlpack-legacy"]),
        "to_cai of a bare method": lambda: to_cai(arrays["dlpack-bare"], stream=mine),
        "to_cai of a capsule": lambda: to_cai(view.__dlpack__(max_version=(1, 3)), stream=mine),
        "to_cai of CAI": lambda: to_cai(cai, stream=mine),
        "from_cai": lambda: from_cai(cai),
        "from_cai of a dict": lambda: from_cai(dict_view.__cuda_array_interface__, owner=table),
        "from_cai of version 2": lambda: from_cai(arrays["cai2"], stream=theirs),
        "a capsule that nobody takes": lambda: view.__dlpack__(stream=mine),
        "a capsule that is taken": lambda: _core._simulated_import_capsule(view.__dlpack__()),
        "a tensor by the table": lambda: _core._simulated_import_exchange(view),
        "a borrowed tensor": lambda: _core._simulated_borrow_exchange(view),
        "there and back": lambda: to_cai(from_cai(to_cai(table)).__dlpack__()),
        "a refused stream": lambda: refused(lambda: to_cai(method, stream=0), ValueError),
        "a refused object": lambda: refused(lambda: to_cai(object()), TypeError),
        "a refused export": lambda: refused(lambda: view.__dlpack__(dl_device=(3, 0)), BufferError),
        "release": release,
        "cycles": cycle,
    }


def run(cuda, name, call, rounds):
    """Call it that often. Now and then all is synchronised, as a program does: until then what the
    consumer may still use is kept. And garbage is collected, which some interpreters put off."""
    for turn in range(1, rounds + 1):
        call()
        if turn % 1000 == 0 or turn == rounds:
            cuda.synchronize()
            gc.collect()
            if name != LOG:
                cuda.clear_calls()


def grown(cuda, name, call, rounds):
    """By how many bytes the process grows in that many rounds."""
    gc.collect()
    before = resident()
    run(cuda, name, call, rounds)
    return resident() - before


def main(rounds, say=print):
    """Run all; return those that grew."""
    failed = []
    with simulated_cuda(check=False) as cuda:
        cuda.synchronize()
        for name, call in conversions(cuda).items():
            run(cuda, name, call, LOG_WARM_UP if name == LOG else WARM_UP)
            started = perf_counter()
            more = grown(cuda, name, call, rounds)
            spent = (perf_counter() - started) / rounds * 1e9
            flat = more <= ALLOWED
            say(f"{name:28} {more:+12,} bytes {spent:8,.0f} ns  {'flat' if flat else 'GROWS'}")
            if not flat:
                failed.append(f"{name}: {more / rounds:.2f} bytes a round")
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    sys.exit("\n".join(main(parser.parse_args().rounds)) or 0)
