"""Runs each row of growth.toml for each of its sizes, under callgrind, and measures the memory.

    python growth_child.py GROWTH [memory]

Beside the names of child.py: nested, pairs, cupys, stubs make trees and arrays; pending, apart,
dead and libraries leave what their names say; say is the stub driver's, settle the bridge's.
"""

import ctypes
import gc
import itertools
import json
import sys
import tomllib
from pathlib import Path

import child

import cai_bridge
import fake_libraries
from cai_bridge import _core, _libraries

WARM, ROUNDS, PIECES = 20, 50, 10_000
DRIVER = ctypes.CDLL("libcuda.so.1")
C = ctypes.CDLL(None)
address = itertools.count(0x9_0000_0000, 256)


def say(name, value):
    assert DRIVER.fake_driver_say(name, ctypes.c_uint64(value)) == 0


def nested(x, depth, held=None):
    for _ in range(depth):
        x = [x]
        if held is not None:
            held.append(x)
    return x


def pairs(x, depth):
    x = [x]
    for _ in range(depth):
        x = (x, x)
    return x


def cupys(many):
    return [fake_libraries.NdArray(next(address), (4,)) for _ in range(many)]


def stubs(many):
    kinds = [type(f"Stub{number}", (child.Stub,), {}) for number in range(many)]
    return [kind(next(address), (4,), 1) for kind in kinds]


def pending(many):
    j = child.names()["j"]
    for _ in range(many):
        shown(cai_bridge.to_cai(j))


def apart(many):
    """Leave ends of readers that each work on a stream of their own."""
    j = child.names()["j"]
    streams = [child.StreamObject(child.SIDE + 0x20_0000 + 16 * number) for number in range(many)]
    for stream in streams:
        cai_bridge.to_cai(j, stream=stream)
    return streams


def shown(view):
    return view, view.__cuda_array_interface__


def dead(many):
    t = child.names()["t"]
    for number in range(many):
        cai_bridge.to_cai(t, stream=child.StreamObject(child.SIDE + 0x10_0000 + 16 * number))


def libraries(many):
    _libraries._registered = {}
    _libraries.ask_for_streams()
    for number in range(many):
        kind = type(f"Library{number}", (Asked,), {"name": f"asked_{number}"})
        cai_bridge.register(kind())


class Asked(cai_bridge.Library):
    """A library that is there, and works on the default stream."""

    arrays = (child.Stub,)

    def current_stream(self, device):
        return 1

    def make(self, view, stream):
        raise NotImplementedError


def on(device):
    say(b"ordinal", device)
    return cai_bridge.from_cai(fake_libraries.NdArray(next(address), (4,))).__dlpack__()


def names():
    # The thread that asks for pending ends would be counted as well.
    _core._end()
    own = (nested, pairs, cupys, stubs, pending, apart, dead, libraries, say, shown, on)
    return {**child.names(), "settle": _core._settle, **{one.__name__: one for one in own}}


def count(rows):
    known = names()
    for row in rows:
        rounds = row.get("rounds", ROUNDS)
        for size in row["sizes"]:
            scope = {**known, "n": size}
            exec(row["setup"], scope)
            source = f"def rounds(many):\n    for _ in many:\n        {row['statement']}\n"
            exec(source, scope)
            scope["rounds"](itertools.repeat(None, min(WARM, rounds)))
            gc.collect()
            gc.disable()
            fake_libraries.instrumented(True)
            fake_libraries.counted(scope["rounds"], itertools.repeat(None, rounds))
            fake_libraries.instrumented(False)
            gc.enable()
            exec(row.get("after", ""), scope)


class Heap(ctypes.Structure):
    """``struct mallinfo2`` of glibc: its eighth field is what is in use."""

    _fields_ = [(f"f{number}", ctypes.c_size_t) for number in range(10)]


def in_use():
    gc.collect()
    C.mallinfo2.restype = Heap
    return C.mallinfo2().f7


def measure(rows):
    """Give the bytes of a piece while all are there, and once all are gone."""
    known, found = names(), []
    for row in rows:
        code = compile(row["made"], "<row>", "eval")
        # What is made once is there already.
        held = [eval(code, known) for _ in range(PIECES // 100)]
        held = [None] * PIECES
        before = in_use()
        for at in range(PIECES):
            held[at] = eval(code, known)
        there = in_use() - before
        held = [None] * PIECES
        found.append((there / PIECES, (in_use() - before) / PIECES))
    return found


if __name__ == "__main__":
    growth = tomllib.loads(Path(sys.argv[1]).read_text())
    if "memory" in sys.argv:
        print(json.dumps(measure(growth["memory"])))
    else:
        count(growth["row"])
