"""Runs random programs on the driver in software.

    python programs.py FILE [shared]

The file has a program in JSON in each line. By default the words have memory of their own, and are
printed after each program; those of `shared` programs are of one allocation, as those of a caching
allocator are.
"""

import json
import sys
from ctypes import c_uint64
from pathlib import Path

import soft

ADDRESSES = {"fill": 1, "copy": 2, "add": 2, "put": 1, "get": 2, "seldom": 2, "noise": 2}
"""How many of a kernel's arguments are words."""
shared = "shared" in sys.argv[2:]
if shared:
    segment = soft.made("cuMemAlloc_v2", 96 * 8)
    words = [segment + 8 * number for number in range(96)]
    streams = [soft.stream() for _ in range(3)]
else:
    streams = [soft.LEGACY, soft.stream(0), soft.stream(), soft.stream()]
    words = [soft.word() for _ in range(3)]
for line in Path(sys.argv[1]).read_text().splitlines():
    for word in () if shared else words:
        c_uint64.from_address(word).value = 0
    for kind, stream, *rest in json.loads(line):
        one = streams[stream]
        if kind == "order":
            soft.order(one, streams[rest[0]])
        elif kind == "sync":
            soft.call("cuStreamSynchronize", one)
        else:
            count = ADDRESSES[kind]
            soft.launch(kind, one, *(words[n] for n in rest[:count]), *rest[count:], pause=0)
    soft.call("cuCtxSynchronize")
    if not shared:
        print([soft.peek(word) for word in words])
