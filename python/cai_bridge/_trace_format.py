"""Writes a trace's events in the trace event format, which Chrome and Perfetto read.

"Trace Event Format" (Google, 2016) describes the format. One process stands for the host, with a
lane for each thread, and one for each device, with a lane for each stream. Lanes have numbers of
their own. Times are microseconds, in steps of a nanosecond.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from cai_bridge import _core

_HOST = 1
_FIRST_DEVICE = 2
# The length of an order's slices, since an arrow needs a slice at each end.
_TICK = 100
_AT_ONCE = 1000

_Event = dict[str, Any]
_Lane = tuple[int, int]

_STREAMS = ("stream", "producer", "consumer")
_POINTERS = ("ptr", "copy")


def write(file: TextIO, recording: _core._Recording, streams: Mapping[int, str]) -> None:
    """Write all events in `recording`, and empty it."""
    # The first event is that of the thread that opened the trace.
    began, ended = recording.times
    timeline = _Timeline(began, dict(recording.threads), streams)
    about = {
        "cai_bridge": _core.__version__,
        "times": "of the host, in microseconds since the trace began",
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "left_out": recording.left_out,
    }
    head = {"displayTimeUnit": "ns", "otherData": about}
    file.write(f'{json.dumps(head)[:-1]}, "traceEvents": [\n')
    while kept := recording.take(_AT_ONCE):
        for event in kept:
            for made in timeline.read(*event):
                file.write(f"{json.dumps(made)},\n")
    if recording.left_out:
        text = f"{recording.left_out} events are left out: the limit was reached"
        file.write(f"{json.dumps(timeline.mark(ended, text))},\n")
    file.write(",\n".join(json.dumps(event) for event in timeline.metadata()))
    file.write("\n]}\n")


class _Timeline:
    """The lanes and their events."""

    def __init__(self, began: int, threads: dict[int, str], streams: Mapping[int, str]) -> None:
        self._began = began
        self._thread_names = threads
        self._stream_names = streams
        self._lanes: dict[tuple[int, int, int], tuple[_Lane, str]] = {}
        # The end of a lane's last slice, which the next slice must not overlap.
        self._ends: dict[_Lane, int] = {}
        self._arrows = 0
        self._first = self._thread(next(iter(threads)))

    def read(self, name: str, at: int, thread: int, fields: _Event) -> Iterator[_Event]:
        """Yield the entries for one event, made at the time `at` by the thread `thread`."""
        lane, at = self._thread(thread), at - self._began
        ended = fields.pop("trace.ended", at + self._began) - self._began
        began = fields.pop("trace.began", ended + self._began) - self._began
        recorded_on = fields.pop("trace.recorded_on", None)
        stream = fields.pop("trace.stream", None)
        args = self._args(fields, thread)
        match name:
            case "hand over" | "give back" if fields["order"] == "made":
                way = ("producer", "consumer") if name == "hand over" else ("consumer", "producer")
                first = self._stream(recorded_on, fields[way[0]], thread)
                then = self._stream(fields["device"], fields[way[1]], thread)
                yield from self._order(at, first, then, {**args, "way": name})
            case "hand over" | "give back":
                waits = fields["consumer" if name == "hand over" else "producer"]
                there = self._stream(fields["device"], waits, thread)
                yield _instant(at, there, "order", "order failed", {**args, "way": name})
            case "elided":
                there = lane if stream is None else self._stream(fields["device"], stream, thread)
                why = "no wait: " + fields["why"].partition(":")[0]
                yield _instant(at, there, "order", why, args)
            case "exchange" | "release" | "copy" | "host wait":
                title = {"exchange": fields.get("door"), "release": fields.get("by")}.get(name)
                yield _slice((began, ended), lane, name, title or name, args)
                if name == "copy":
                    there = self._stream(fields["device"], stream, thread)
                    yield _instant(at, there, name, f"copy of {fields['nbytes']} bytes", args)
            case _:
                yield _instant(at, lane, "trouble", fields.pop("message", name), args)

    def mark(self, at: int, text: str) -> _Event:
        """Return a mark across all lanes."""
        return {**_instant(at - self._began, self._first, "trace", text, {}), "s": "g"}

    def metadata(self) -> Iterator[_Event]:
        """Yield the names of the used lanes, and their order."""
        for pid in sorted({pid for (pid, _), _ in self._lanes.values()}):
            name = "host threads" if pid == _HOST else f"cuda:{pid - _FIRST_DEVICE} streams"
            yield _about(pid, 0, "process_name", name=name)
            yield _about(pid, 0, "process_sort_index", sort_index=pid)
        for (pid, tid), name in self._lanes.values():
            yield _about(pid, tid, "thread_name", name=name)
            yield _about(pid, tid, "thread_sort_index", sort_index=tid)

    def _order(self, at: int, first: _Lane, then: _Lane, args: _Event) -> Iterator[_Event]:
        self._arrows += 1
        recorded = max(at, self._ends.get(first, 0))
        self._ends[first] = recorded + _TICK
        # Not earlier: an arrow goes forward in time.
        waited = max(recorded, self._ends.get(then, 0))
        self._ends[then] = waited + _TICK
        arrow = {"name": "order", "cat": "order", "id": self._arrows}
        yield _slice((recorded, recorded + _TICK), first, "order", "record", args)
        yield {**arrow, "ph": "s", **_place(recorded, first)}
        yield _slice((waited, waited + _TICK), then, "order", "wait", args)
        yield {**arrow, "ph": "f", "bp": "e", **_place(waited, then)}

    def _thread(self, number: int) -> _Lane:
        return self._lane((_HOST, number, 0), self._thread_name(number))

    def _thread_name(self, number: int) -> str:
        # A thread that appeared when the interpreter was about to end could not be asked.
        return self._thread_names.get(number) or f"thread {number}"

    def _stream(self, device: int, handle: int, thread: int) -> _Lane:
        # Each thread has a per-thread default stream of its own.
        key = (_FIRST_DEVICE + device, handle, thread if handle == 2 else 0)
        return self._lane(key, self._stream_name(handle, thread))

    def _stream_name(self, handle: int, thread: int) -> str:
        if handle == 1:
            return "legacy default stream (1)"
        if handle == 2:
            return f"per-thread default stream (2) of {self._thread_name(thread)}"
        name = self._stream_names.get(handle, "stream")
        return f"{name} {handle:#x}"

    def _lane(self, key: tuple[int, int, int], name: str) -> _Lane:
        # Numbers run on across processes: viewers take a number for one thread, whatever its
        # process.
        lane = (key[0], len(self._lanes) + 1)
        return self._lanes.setdefault(key, (lane, name))[0]

    def _args(self, fields: _Event, thread: int) -> _Event:
        # A warning may describe an event in words.
        numbers = {name: value for name, value in fields.items() if isinstance(value, int)}
        named = {
            name: self._stream_name(numbers[name], thread) for name in _STREAMS if name in numbers
        }
        pointers = {name: hex(numbers[name]) for name in _POINTERS if name in numbers}
        return {**fields, **named, **pointers, "thread": self._thread_name(thread)}


def _place(at: int, lane: _Lane) -> _Event:
    return {"ts": at / 1000, "pid": lane[0], "tid": lane[1]}


def _slice(span: tuple[int, int], lane: _Lane, cat: str, name: str, args: _Event) -> _Event:
    began, ended = span
    made = {"ph": "X", "cat": cat, "name": name, **_place(began, lane)}
    return {**made, "dur": (ended - began) / 1000, "args": args}


def _instant(at: int, lane: _Lane, cat: str, name: str, args: _Event) -> _Event:
    return {"ph": "i", "s": "t", "cat": cat, "name": name, **_place(at, lane), "args": args}


def _about(pid: int, tid: int, what: str, **args: object) -> _Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}
