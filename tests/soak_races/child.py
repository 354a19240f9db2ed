"""Runs programs on the driver in software.

    python child.py FILE

The file has a program in JSON in each line. The words are those of one allocation, as those of a
caching allocator are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import soft

STREAMS, WORDS = 3, 96
ADDRESSES = {"fill": 1, "copy": 2, "add": 2, "put": 1, "get": 2, "seldom": 2, "noise": 2}
"""How many of a kernel's arguments are words."""
segment = soft.made("cuMemAlloc_v2", WORDS * 8)
streams = [soft.stream() for _ in range(STREAMS)]
for line in Path(sys.argv[1]).read_text().splitlines():
    for kind, stream, *rest in json.loads(line):
        one = streams[stream]
        if kind == "order":
            soft.order(one, streams[rest[0]])
        elif kind == "sync":
            soft.call("cuStreamSynchronize", one)
        else:
            count = ADDRESSES[kind]
            given = [segment + 8 * word for word in rest[:count]]
            soft.launch(kind, one, *given, *rest[count:], pause=0)
    soft.call("cuCtxSynchronize")
