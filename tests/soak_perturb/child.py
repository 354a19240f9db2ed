"""Runs programs on the driver in software, and prints what each leaves in memory.

    python child.py FILE

The file has a program in JSON in each line.
"""

from __future__ import annotations

import json
import sys
from ctypes import c_uint64
from pathlib import Path

import soft

streams = [soft.LEGACY, soft.stream(0), soft.stream(), soft.stream()]
words = [soft.word() for _ in range(3)]
for line in Path(sys.argv[1]).read_text().splitlines():
    for word in words:
        c_uint64.from_address(word).value = 0
    for kind, stream, *rest in json.loads(line):
        one = streams[stream]
        if kind == "fill":
            soft.launch("fill", one, words[rest[0]], rest[1], pause=0)
        elif kind == "copy":
            soft.launch("copy", one, words[rest[0]], words[rest[1]], pause=0)
        elif kind == "order":
            soft.order(one, streams[rest[0]])
        else:
            soft.call("cuStreamSynchronize", one)
    soft.call("cuCtxSynchronize")
    print([soft.peek(word) for word in words])
