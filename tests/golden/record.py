"""Runs programs of the soak on the simulated device, and takes down what happens in them.

Nothing that differs from one process to the next is taken down: no address, and no order of sets.
"""

from __future__ import annotations

import gc
import logging
import re
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

from ..soak.device import machine, room
from ..soak.device.machine import Machine
from ..soak.program import World
from ..soak.steps import Steps

GROUPS = {"known": False, "strangers": True}
"""The groups of programs, and whether the bridge knows no library in them."""
COUNT = 2_000
"""So many programs of each group, from seed 0 on."""
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_FIELDS = ("door", "device", "producer", "consumer", "order")


@dataclass
class Program:
    """What happened in a program.

    Attributes
    ----------
    lines : list of str
        The steps, which begin with ``>``, and what came of each, in order.
    messages : set of str
        Every text of a log record, a warning and an exception, its numbers left out.
    """

    lines: list[str] = field(default_factory=list)
    messages: set[str] = field(default_factory=set)


class Recorder(logging.Handler):
    """Takes down programs, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.program = Program()
        self.steps: Steps = ()
        self._session: Any = None

    def watch(self, cuda: Any, number: int) -> None:
        """Begin a step, or what comes behind the last one."""
        self._session = cuda._session
        self._note(f"> {self.steps[number] if number < len(self.steps) else 'finish'}")

    def emit(self, record: logging.LogRecord) -> None:
        """Take down a log record."""
        fields, text = vars(record), [record.args[0] if record.args else record.msg]
        text += [fields[name] for name in ("why", "error") if name in fields]
        said = " ".join(f"{name}={fields[name]}" for name in _FIELDS if name in fields)
        self._note(f"log {record.levelname} {said}", ": ".join(map(str, text)))

    def warn(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        """Take down a warning."""
        self._note(f"warning {category.__name__}", str(message))

    def heard(self, error: BaseException) -> None:
        """Take down an exception that the program expects."""
        call = getattr(error, "call", None)
        self._note(f"exception {type(error).__name__} {call}", str(error))

    def unraisable(self, hooked: Any) -> None:
        """Take down an exception that nobody can get."""
        self._note(f"unraisable {hooked.exc_type.__name__}", str(hooked.exc_value))

    def end(self, failure: machine.Failure | None) -> Program:
        """Give what happened in the program, and begin another."""
        self._note("end" if failure is None else f"end {failure.kind}")
        self._session = None
        program, self.program = self.program, Program()
        return program

    def _note(self, line: str, message: str = "") -> None:
        if self._session is not None:
            for call, outcome, stream, event, context in self._session.calls():
                said = f"{call} {outcome} {stream} {event} {context}"
                self.program.lines.append(said)
            self._session.clear_calls()
        self.program.lines.append(line)
        if message:
            kind = " ".join(line.split()[:2])
            self.program.messages.add(f"{kind}: {_NUMBER.sub('N', message)}")


def programs(group: str) -> list[Program]:
    """Run the programs of a group."""
    recorder, world = Recorder(), World("device", strangers=GROUPS[group])
    logger = logging.getLogger("cai_bridge")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(recorder)
    logger.propagate = False
    warnings.simplefilter("always")
    warnings.showwarning = recorder.warn  # type: ignore[assignment]
    sys.unraisablehook = recorder.unraisable
    Machine.heard = staticmethod(recorder.heard)
    gc.disable()
    gc.freeze()
    taken_down = []
    for seed in range(COUNT):
        steps = room.program(seed, world).steps
        recorder.steps = steps
        failure = machine.run(steps, room.model(world), recorder.watch)
        taken_down.append(recorder.end(failure))
    return taken_down
