"""Events: each order, made or elided, is a record of the logger ``cai_bridge``, or nothing."""

import logging
import threading
from contextlib import contextmanager
from unittest import mock

import pytest
import tables
from children import assert_quiet
from fakes import OnlyCai, interface, only_cai, without_warning

from cai_bridge import DriverError, _events, from_cai, to_cai

LOGGER = logging.getLogger("cai_bridge")


@pytest.fixture(autouse=True)
def _levels_as_before():
    """The levels as they were, afterwards."""
    before = (LOGGER.level, logging.root.level, logging.root.manager.disable)
    yield
    LOGGER.setLevel(before[0])
    logging.root.setLevel(before[1])
    logging.disable(before[2])


@pytest.fixture
def events(caplog):
    """The records so far; asking for them forgets them."""
    caplog.set_level(logging.DEBUG, logger="cai_bridge")

    def take():
        records = [record for record in caplog.records if record.name == "cai_bridge"]
        caplog.clear()
        # Each view and capsule tells of its end as well, in a record of its own.
        return [record for record in records if record.door != "release"]

    return take


FIELDS = ("door", "device", "producer", "consumer", "order", "why")


def fields(record):
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def made(door, first, then, device=0):
    return {"door": door, "device": device, "producer": first, "consumer": then, "order": "made"}


def elided(door, why, device=0):
    return {"door": door, "device": device, "order": "elided", "why": why}


NOTHING = "nothing pending"
SAME = "same stream"


@pytest.mark.parametrize(
    ("theirs", "stream", "why"),
    [
        ("own", 1, None),
        ("own", 2, None),
        (1, "own", None),
        (1, 2, None),
        (2, 1, None),
        (1, "blocking", None),
        ("blocking", 1, None),
        (1, 1, SAME),
        ("own", "own", SAME),
        (1, None, "the consumer is told the producer's stream"),
        (1, -1, "no order asked for"),
        (None, 1, SAME),
        ("trusted", 1, NOTHING),
    ],
)
def test_each_order_of_to_cai_made_or_elided_is_one_record(theirs, stream, why, events, cuda):
    streams = {"own": cuda.stream(), "blocking": cuda.stream(blocking=True)}
    theirs, stream = (getattr(streams.get(s), "handle", s) for s in (theirs, stream))
    x = cuda.array(shape=4, speaks="cai3")
    to_cai(x if theirs == "trusted" else only_cai(x, stream=theirs), stream=stream)
    wanted = elided("to_cai", why) if why else made("to_cai", theirs, stream)
    (record,) = events()
    assert fields(record) == wanted
    assert (record.levelno, record.levelname) == (logging.DEBUG, "DEBUG")
    assert (record.name, record.exc_info) == ("cai_bridge", None)
    for name, value in wanted.items():
        is_handle = name in ("producer", "consumer") and isinstance(value, int) and value > 2
        assert f"{name}={hex(value) if is_handle else value}" in record.getMessage()


@pytest.mark.parametrize(
    ("door", "export"),
    [
        ("__dlpack__", lambda view: view.__dlpack__()),
        ("__dlpack__", lambda view: view.__dlpack__(stream=1, max_version=(1, 3))),
        ("exchange API", tables.borrowed),
        ("exchange API", lambda view: tables.managed(view).delete()),
    ],
)
@pytest.mark.parametrize(
    ("theirs", "why"),
    [("own", None), (2, None), (1, SAME), (None, SAME), ("trusted", NOTHING)],
)
def test_each_order_of_an_export_is_one_record(theirs, why, door, export, events, cuda):
    own = cuda.stream(device=1)
    theirs = own.handle if theirs == "own" else theirs
    x = cuda.array(shape=4, device=1, speaks="cai3")
    if theirs != "trusted":
        x = only_cai(x, stream=theirs)
        x.stream = own  # an exporter keeps the stream alive that its dict names
    view = from_cai(x)
    assert events() == []
    export(view)
    (record,) = events()
    assert fields(record) == (elided(door, why, 1) if why else made(door, theirs, 1, 1))


@pytest.mark.parametrize("door", [from_cai, to_cai], ids=["from_cai", "to_cai"])
def test_a_wait_on_the_host_is_a_record_of_the_function_that_was_called(door, events, cuda):
    x = cuda.array(shape=4)
    view = without_warning(type("Waited", (OnlyCai,), {})(interface(x, version=2)), door)
    record = events()[0]
    assert (record.door, record.order, record.why) == (door.__name__, "made", "host wait")
    assert view.stream is None


def test_an_order_that_failed_is_a_record_and_raises(events, cuda):
    own = cuda.stream()
    cuda.fail("cuEventRecord")
    with pytest.raises(DriverError):
        to_cai(only_cai(cuda.array(shape=4), stream=1), stream=own)
    (record,) = events()
    assert fields(record) == {**made("to_cai", 1, own.handle), "order": "failed"}


@pytest.fixture
def emitted(monkeypatch):
    """What the extension hands to Python, whatever becomes of it there."""
    calls = []

    def emit(level, text, fields):
        if fields["door"] != "release":
            calls.append((level, text, fields))

    monkeypatch.setattr(_events, "emit", emit)
    return calls


def convert(cuda):
    x = cuda.array(shape=4)
    from_cai(to_cai(only_cai(x, stream=1), stream=2)).__dlpack__()


SET = [("WARNING", 0), ("DEBUG", 2), ("INFO", 0), (1, 2), ("CRITICAL", 0), (10, 2), (11, 0)]
LEVELS = {
    "setLevel": (LOGGER.setLevel, [*SET, (10_000, 0)]),
    "basicConfig": (lambda level: logging.basicConfig(level=level, force=True), SET),
    "root.setLevel": (logging.root.setLevel, SET),
    "disable": (
        logging.disable,
        [(logging.NOTSET, 2), (logging.DEBUG, 0), (logging.NOTSET, 2), (logging.CRITICAL, 0)],
    ),
}


@pytest.mark.parametrize("how", LEVELS)
def test_a_change_of_the_level_takes_effect_at_once(how, emitted, cuda):
    change, levels = LEVELS[how]
    LOGGER.setLevel(logging.DEBUG if how == "disable" else logging.NOTSET)
    handlers = logging.root.handlers[:]
    logging.root.handlers.clear()
    try:
        for level, heard in levels:
            change(level)
            emitted.clear()
            convert(cuda)
            assert len(emitted) == heard, level
    finally:
        logging.root.handlers[:] = handlers


def test_a_record_is_filtered_once_more_where_it_is_logged(caplog, cuda):
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.disabled = True
    try:
        convert(cuda)
    finally:
        LOGGER.disabled = False
    assert caplog.records == []


@contextmanager
def handled(emit):
    """Handle every event by `emit`."""
    handler = logging.Handler()
    handler.emit = emit
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)


def test_of_what_a_handler_converts_itself_nothing_is_told(cuda):
    x, said = cuda.array(shape=4), []

    def emit(record):
        said.append(record.door)
        to_cai(only_cai(x, stream=1), stream=2)

    with handled(emit):
        for _ in range(500):
            to_cai(only_cai(x, stream=1), stream=2)
    assert said == ["to_cai", "release"] * 500


@pytest.mark.parametrize("error", [RecursionError, MemoryError, LookupError])
def test_what_a_handler_raises_is_reported_and_the_next_event_is_told(error, cuda, monkeypatch):
    said, unraisable = [], []

    def emit(record):
        said.append(record.door)
        raise error("torn")

    monkeypatch.setattr("sys.unraisablehook", lambda each: unraisable.append(each.exc_type))
    x = cuda.array(shape=4)
    with handled(emit):
        to_cai(only_cai(x, stream=1), stream=2)
    assert said == ["to_cai", "release"]
    assert unraisable == [error, error]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_event_that_fails_fails_no_conversion(monkeypatch, cuda):
    monkeypatch.setattr(_events, "emit", mock.Mock(side_effect=LookupError("torn")))
    LOGGER.setLevel(logging.DEBUG)
    x = cuda.array([1.0] * 4)
    assert cuda.read(to_cai(only_cai(x, stream=1), stream=2)) == [1.0] * 4


QUIET = """
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda
    import logging
    assert logging.getLogger("cai_bridge").level == logging.NOTSET
    assert [type(h) for h in logging.getLogger("cai_bridge").handlers] == [logging.NullHandler]
    assert logging.root.handlers == []
    with simulated_cuda() as cuda:
        to_cai(cuda.array([1.0]))
"""


def test_a_library_says_nothing_of_its_own_accord():
    assert_quiet(QUIET, prelude="")


class Own(BaseException):
    """An exception that is no ``Exception``."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, Own])
@pytest.mark.parametrize("by", ["the main thread", "another thread"])
def test_an_interrupt_in_a_handler_is_raised_once_the_call_is_made(cuda, kind, by, capfd):
    logged, raised = [], []

    def emit(record):
        logged.append(record)
        if len(logged) == 1:  # what later records raised would come after this test, and end pytest
            raise kind(3)

    def run():
        try:
            to_cai(x, stream=s)
            for _ in range(1000):
                pass
        except kind as error:
            raised.append(error.args)

    x, s = cuda.array([1.0], stream=cuda.stream("p")), cuda.stream("s")
    with handled(emit):
        if by == "the main thread":
            run()
        else:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
    assert raised == [(3,) if by == "the main thread" else ()]
    assert "Traceback" not in capfd.readouterr().err
    cuda.synchronize()
    assert cuda.reports == []
