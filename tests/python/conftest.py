"""What tests have: a simulated device or a lab where they ask for one, and a count of deleters."""

import gc
import random
import signal
import zlib
from collections import Counter, defaultdict

import capsules
import pytest
from contract import rows
from traces import Trace

from cai_bridge import _core, trace
from cai_bridge.conformance import open_lab
from cai_bridge.testing import simulated_cuda

# Files of few tests that run for ten seconds and more, the longest first. xdist begins with the
# files of most tests: these would be its last, and one process would wait for another's.
LONG = (
    "planted flat pytest_plugin_adapters conformance_right perturb_named perturb_races isolated "
    "soak_races conformance_of_views soak_libraries conformance_reference share perturb_says "
    "perturb_unlike perturb_seen conformance_evidence soak conformance_judging pytest_plugin "
    "perturb_gates bridged_producers nanobind races_named host_wait cli_hostile cuda_door "
    "soak_perturb gate adapters leaks cli pytest_plugin_mistakes endings matrix_processes"
)


def pytest_addoption(parser):
    parser.addoption(
        "--unfrozen", action="store_true", help="let each collection look at every old object"
    )
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in another order")
    parser.addoption(
        "--no-habits", action="store_true", help="let the bridge know no library (docs/unknown.md)"
    )
    parser.addoption(
        "--every", action="store_true", help="run every case of the tests that have the mark `some`"
    )


def pytest_configure(config):
    if config.getoption("--no-habits"):
        _core._forget_habits()
    if config.getoption("--shuffle") is None and hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def long_first(items):
    """Put the files in the order in which xdist is to give them out."""
    tests = Counter(item.path for item in items)
    places = {f"test_{name}": place for place, name in enumerate(LONG.split())}
    items.sort(
        key=lambda item: (places.get(item.path.stem, len(places)), -tests[item.path], item.path)
    )


def argue(config, items):
    """Let those tests differ that no_habits.toml argues; whatever else differs fails."""
    listed = {(row["file"], row["test"]): row["needs"] for row in rows("no_habits", "differs")}
    found = {(item.path.name, item.originalname) for item in items}
    collected = {item.path.name for item in items}
    gone = [row for row in listed if row[0] in collected and row not in found]
    chosen = config.option.keyword or any("::" in argument for argument in config.args)
    if gone and not chosen:
        raise pytest.UsageError(f"no_habits.toml lists tests that are no more: {gone}")
    for item in items:
        if needs := listed.get((item.path.name, item.originalname)):
            item.add_marker(pytest.mark.xfail(reason=needs, strict=False))


def leave_some(config, items):
    """Leave out most cases of a test with the mark `some`, always the same ones."""
    tests = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("some"):
            tests[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    out = []
    for (_, one_in), cases in tests.items():
        # By their names: with every n-th one, some values of crossed parameters would never run.
        cases.sort(key=lambda item: zlib.crc32(item.name.encode()))
        out += cases[-(-len(cases) // one_in) :]
    gone = set(out)
    left = [item for item in items if item not in gone]
    items[:] = left
    config.hook.pytest_deselected(items=out)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Files in another order, and the tests in each; those with the mark `last` stay its last."""
    # Who names a test wants it.
    if not (config.getoption("--every") or any("::" in argument for argument in config.args)):
        leave_some(config, items)
    if config.getoption("--no-habits"):
        argue(config, items)
    if (seed := config.getoption("--shuffle")) is None:
        if hasattr(config, "workerinput"):
            long_first(items)
        return
    draw = random.Random(seed)
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    for some in files.values():
        draw.shuffle(some)
        some.sort(key=lambda item: item.get_closest_marker("last") is not None)
    items[:] = [item for path in draw.sample(list(files), len(files)) for item in files[path]]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """No collection of a test looks at what was there before: a million objects of pytest's."""
    if not item.config.getoption("--unfrozen"):
        gc.collect()
        gc.freeze()


@pytest.fixture
def cuda(request):
    """Two devices; whatever the happens-before check finds fails the test.

    With the mark `unchecked` it is the test's to look at.
    """
    unchecked = request.node.get_closest_marker("unchecked")
    with simulated_cuda(devices=2, check=unchecked is None) as cuda:
        yield cuda


@pytest.fixture
def lab():
    """Where the kit judges: a simulated device of its own."""
    with open_lab("simulated") as lab:
        yield lab


@pytest.fixture(autouse=True)
def managed_tensors_are_deleted_once(request):
    """Every managed tensor made by hand that was given away is deleted by the end, and once.

    With the mark `faulty` a library that deletes twice is judged.
    """
    capsules.forget()
    yield
    if capsules.made:
        gc.collect()
        gone = [tensor.deleted for tensor in capsules.made.values() if tensor.has_deleter]
        assert gone == [int(t.handed_out) for t in capsules.made.values() if t.has_deleter]
    if request.node.get_closest_marker("faulty") is None:
        assert capsules.ghosts == []


@pytest.fixture
def traced(tmp_path):
    """A trace to open, and what it then has written."""

    class Traced:
        path = tmp_path / "trace.json"

        def __call__(self, **options):
            # What is garbage by now ends now.
            gc.collect()
            return trace(self.path, **options)

        def read(self):
            return Trace(self.path)

    return Traced()


@pytest.fixture
def heeded_signals():
    """Have children end by signals that are ignored here, as in a background job."""
    asked = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    ignored = [one for one in asked if signal.getsignal(one) == signal.SIG_IGN]
    for one in ignored:
        signal.signal(one, signal.SIG_DFL)
    yield
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)
