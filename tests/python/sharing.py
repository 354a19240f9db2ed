"""Another process with a simulated device, which runs what a test tells it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any, Self

SPAWN = multiprocessing.get_context("spawn")


WORDS = """
import gc, logging, socket, threading, time
from cai_bridge import _share

def share(**options):
    # An array of a stream's, of which only the bridge has a reference.
    stream = options.pop("stream", None) or cuda.stream()
    how = {name: options.pop(name) for name in ("receivers", "copy", "readonly") if name in options}
    return stream, cb.share(cuda.array([1.0, 2.0], stream=stream, **options), **how)

def read(view, stream=None):
    # What the view holds, once the host asks.
    stream = stream or cuda.stream()
    return stream.read(cb.to_cai(view, stream=stream))

def settled(condition, seconds=8.0):
    # Twice this is less than the time that an answer may take.
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()

def is_over():
    # All work has run by then: an owner may have to outlive some.
    return settled(lambda: not cb.shares()) and settled(
        lambda: cuda.synchronize() or not cuda._session.bytes_in_use
    )
"""


def serve(pipe: Connection, devices: int) -> None:
    """Run code until the pipe ends."""
    import logging

    import cai_bridge
    from cai_bridge.testing import simulated_cuda

    logging.getLogger("cai_bridge").setLevel(logging.CRITICAL)
    with simulated_cuda(devices, shared=True) as cuda:
        names: dict[str, Any] = {"cuda": cuda, "cb": cai_bridge, "os": os}
        exec(WORDS, names)
        while True:
            try:
                code = pipe.recv()
            except (EOFError, OSError):
                break
            try:
                try:
                    answer = eval(code, names)
                except SyntaxError:
                    exec(code, names)
                    answer = None
                pipe.send((True, answer))
            except BaseException as error:
                traceback.clear_frames(error.__traceback__)
                pipe.send((False, f"{type(error).__name__}: {error}"))
        names.clear()


class Peer:
    """The process."""

    def __init__(self, devices: int = 1) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs, devices), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, code: str) -> None:
        """Have it run code; `receive` gives the answer."""
        self.pipe.send(code)

    def receive(self, seconds: float = 20.0) -> Any:
        """Give the answer, or raise what it raised."""
        assert self.pipe.poll(seconds), "no answer"
        worked, answer = self.pipe.recv()
        if not worked:
            raise RuntimeError(answer)
        return answer

    def __call__(self, code: str) -> Any:
        self.send(code)
        return self.receive()

    def kill(self) -> None:
        """End it by SIGKILL, and wait for that."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    def end(self) -> None:
        """End it as a program ends; its device's reports are its exit."""
        self.pipe.close()
        self.process.join(8)
        assert self.process.exitcode in {0, -signal.SIGKILL}, self.process.exitcode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if reason[0] is not None:
            self.process.kill()
        self.end()
