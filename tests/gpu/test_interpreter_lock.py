"""The interpreter lock is given up while the driver may block: a queued callback may need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

CHILD = """
import ctypes, sys, threading, time

sys.path.insert(0, sys.argv[1])
from gpu.driver import load
from cai_bridge import from_cai, to_cai

driver = load()
driver.use_primary()
full, consumer = driver.stream(), driver.stream()
memory = driver.allocate(1024)

class Array:
    __cuda_array_interface__ = {
        "shape": (4,), "typestr": "<f4", "data": (memory, False), "version": 3, "stream": full,
    }

view = from_cai(Array())
go, called, queued = threading.Event(), threading.Event(), 0

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def callback(_):
    go.wait()
    called.set()

driver("cuLaunchHostFunc", full, ctypes.cast(callback, ctypes.c_void_p), None)

def fill():
    global queued
    driver.use_primary()
    for queued in range(100_000):
        driver.write(memory, 1, 4, full)

threading.Thread(target=fill, daemon=True).start()
before = -1
while queued != before:
    before = queued
    time.sleep(0.05)
assert queued and not called.is_set(), "the queue was never full"
# The queue moves on only when a thread that needs the lock has let the callback go.
threading.Timer(0.3, go.set).start()
start = time.perf_counter()
{call}
waited = time.perf_counter() - start
print(f"called {called.wait(10)}, waited {waited > 0.1}", flush=True)
import os
os._exit(0)
"""


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    "call",
    [
        "view.__dlpack__(stream=consumer)",
        "view.__dlpack__()",
        "to_cai(Array(), stream=consumer)",
        "view.wait()",
    ],
)
def test_a_callback_that_needs_the_lock_runs_while_an_order_waits_for_a_full_queue(call):
    child = [sys.executable, "-c", CHILD.replace("{call}", call), str(Path(__file__).parents[1])]
    done = subprocess.run(child, capture_output=True, text=True, timeout=10, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "called True, waited True\n"
