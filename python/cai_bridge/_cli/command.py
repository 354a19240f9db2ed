"""The command line: its commands and options, and its exit status."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from cai_bridge import __version__

from .exits import USAGE, UsageError
from .table import SIDES
from .text import line, prepare_streams

_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="cai-bridge",
        description="GPU arrays between DLPack and the CUDA Array Interface: list what is "
        "installed, show an array, test libraries.",
    )
    top.add_argument("--version", action="version", version=f"cai_bridge {__version__}")
    commands = top.add_subparsers(required=True, metavar="command")
    what = "list what is installed, and what is unsafe, wrong or slow with it"
    _add_doctor(_added(commands, "doctor", "doctor", what))
    what = "show what each protocol says about an array, side by side"
    _add_inspect(_added(commands, "inspect", "inspection", what))
    what = "test libraries against the requirements of the protocols"
    _add_check(_added(commands, "check", "checking", what))
    what = "hand arrays over between all pairs of libraries"
    _add_matrix(_added(commands, "matrix", "matrix", what))
    what = "run a program with GPU work delayed, to show missing waits in its values"
    _add_perturb(_added(commands, "perturb", "perturb", what))
    what = "run a program with its GPU work recorded, to name operations that nothing orders"
    _add_races(_added(commands, "races", "races", what))
    return top


def _added(commands: Any, name: str, module: str, what: str) -> argparse.ArgumentParser:
    """Add a command. It calls `run` of a module of this package with the options."""
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    made.set_defaults(name=name, module=module)
    return made


def _add_output(made: argparse.ArgumentParser, *, page: bool = False) -> None:
    made.add_argument(
        "--json", dest="as_json", action="store_true", help="print JSON instead of text"
    )
    made.add_argument(
        "--output",
        dest="path",
        metavar="path",
        help="write to this file instead of standard output",
    )
    if page:
        made.add_argument("--html", metavar="path", help="write an HTML page")


def _add_doctor(made: argparse.ArgumentParser) -> None:
    made.epilog = "Exit status: 0, or 1 if a setting makes values wrong."
    made.add_argument(
        "--import",
        dest="imported",
        action="store_true",
        help="import the libraries, and look at their array types instead of a table",
    )
    _add_output(made)


def _add_inspect(made: argparse.ArgumentParser) -> None:
    made.epilog = (
        "Exit status: 0, or 1 if a protocol is malformed or cannot be read, or two contradict "
        "each other."
    )
    made.add_argument(
        "subject",
        metavar="module:expression",
        help="what to look at, such as 'torch:zeros(3, device=\"cuda\")'",
    )
    made.add_argument(
        "--simulated",
        action="store_true",
        help="use the simulated device instead of the CUDA driver",
    )
    _add_output(made)


def _add_check(made: argparse.ArgumentParser) -> None:
    made.epilog = (
        "Exit status: 0, 1 if a requirement that a specification demands failed (with --against: "
        "failed, and did not before), or 2 if nothing was judged."
    )
    made.add_argument(
        "subjects", nargs="+", metavar="subject", help="a library's name, or module:factory"
    )
    made.add_argument(
        "--role",
        choices=("producer", "consumer", "both"),
        default="",
        help="the role to test; by default every role that the subject has",
    )
    made.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="name",
        help="a requirement to test, or a pattern of names; may be given more than once",
    )
    place = made.add_mutually_exclusive_group()
    for where, what in (("simulated", "on the simulated device"), ("gpu", "on a GPU")):
        place.add_argument(
            f"--{where}", dest="where", action="store_const", const=where, help=f"judge {what}"
        )
    made.add_argument(
        "--thorough",
        action="store_true",
        help="judge each requirement in every combination of layouts, types, work, streams and "
        "exports; by default a large product is thinned out to all pairs of values",
    )
    _add_output(made, page=True)
    made.add_argument(
        "--against",
        metavar="path",
        help="show new and mended failures since an earlier run, a file that --json --output wrote",
    )
    made.add_argument("--junit", metavar="path", help="write the verdicts as JUnit XML")
    made.add_argument(
        "--report",
        dest="pages",
        metavar="folder",
        help="write a Markdown page for each failed demand, for an issue tracker",
    )


def _add_matrix(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "subjects",
        nargs="*",
        metavar="subject",
        help="the libraries; by default all that are installed",
    )
    made.add_argument(
        "--way",
        dest="ways",
        action="append",
        choices=tuple(SIDES),
        default=[],
        help="without the bridge, by views, or by convert(); repeatable, by default all",
    )
    made.add_argument(
        "--jobs", type=int, default=1, metavar="n", help="how many rows to run at once"
    )
    _add_output(made, page=True)
    made.add_argument(
        "--from",
        dest="source",
        metavar="path",
        help="show an earlier run: a file that --json --output wrote",
    )


def _add_program(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "command",
        # Everything after `--` belongs to the program, including options.
        nargs=argparse.REMAINDER,
        metavar="-- program ...",
        help="the program and its arguments",
    )


def _add_perturb(made: argparse.ArgumentParser) -> None:
    made.epilog = (
        "Such as: cai-bridge perturb --seeds 4 -- python train.py. "
        "Exit status: 0 same, 1 differs, 2 if it could not judge."
    )
    _add_program(made)
    made.add_argument(
        "--seeds",
        type=int,
        metavar="n",
        help="how many choices of late streams to try; by default as many as its streams need",
    )
    made.add_argument(
        "--thorough",
        action="store_true",
        help="also run it with each stream late from the middle of its work on",
    )
    made.add_argument(
        "--compare",
        choices=("stdout", "checkpoints"),
        default="stdout",
        help="what must stay the same: what it prints, or cai_bridge.testing.checkpoint's arrays",
    )
    made.add_argument(
        "--match", default="", metavar="expression", help="compare only lines that have this"
    )
    made.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        metavar="x",
        help="how far numbers may be apart, relative to the larger one; by default 0",
    )
    made.add_argument(
        "--delay",
        type=float,
        default=0.05,
        metavar="s",
        help="by how many seconds late work is late; by default 0.05",
    )
    made.add_argument("--timeout", type=float, metavar="s", help="end a run after so many seconds")
    made.add_argument(
        "--no-name",
        dest="named",
        action="store_false",
        help="do not look for the two operations that nothing orders, which takes 10 to 30 runs",
    )
    _add_output(made)


def _add_races(made: argparse.ArgumentParser) -> None:
    made.epilog = (
        "Such as: cai-bridge races -- python train.py. "
        "Exit status: 0 no race proven, 1 a race, 2 if it could not judge."
    )
    _add_program(made)
    made.add_argument(
        "--match",
        default="",
        metavar="expression",
        help="only pairs with a line that has this, such as 'train.py:12'",
    )
    made.add_argument(
        "--suspects",
        action="store_true",
        help="also list pairs that may touch the same bytes, which is not certain",
    )
    made.add_argument(
        "--confirm",
        action="store_true",
        help="run each suspect the other way round, to see whether what is printed differs",
    )
    made.add_argument(
        "--host",
        action="store_true",
        help="also look at what the host reads and writes in page-locked memory that copies use",
    )
    made.add_argument(
        "--stream-ordered",
        action="store_true",
        help="have PyTorch, JAX and CuPy free each block in the order of a stream, so that a free "
        "that comes too early is seen",
    )
    made.add_argument("--timeout", type=float, metavar="s", help="end a run after so many seconds")
    _add_output(made)


def _run(*, name: str, module: str, **options: Any) -> Any:
    """Import the module of a command, only now, and run it."""
    del name
    return importlib.import_module(f".{module}", __package__).run(**options)


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Turn a signal into an interrupt, so that the command ends its children before it ends."""
    came: list[int] = []

    def interrupt(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    ending = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT) if is_main else ()
    # An ignored signal, as under nohup, stays ignored.
    taken = [number for number in ending if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status.

    Returns
    -------
    int
        0; or 1 if the answer is no; or 2 if the command cannot do what was asked.
    """
    prepare_streams()
    asked = parser().parse_args(arguments)
    with _terminated():
        return _status(asked)


def _status(asked: argparse.Namespace) -> int:
    try:
        status: int = _run(**vars(asked))
    except (UsageError, OSError) as error:
        try:
            sys.stdout.flush()
        except OSError:
            # Otherwise the interpreter flushes the rest at exit, and fails again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # a broken pipe means that the reader has enough
            print(f"cai-bridge {asked.name}: {line(str(error))}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt as interrupt:
        # The message, if any, names the step that was interrupted. It may have hung.
        if interrupt.args:
            print(f"cai-bridge {asked.name}: {line(str(interrupt))}", file=sys.stderr)
        return _INTERRUPTED
    return status
