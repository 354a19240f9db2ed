"""The kit's own library, by which it judges a lab before it accuses anybody there."""

from __future__ import annotations

import contextlib
import threading
import time

import planted
import pytest

from cai_bridge.conformance import in_another_thread, open_lab
from cai_bridge.conformance.judging import LAB_FAILS
from cai_bridge.conformance.lab.simulated import SimulatedLab
from cai_bridge.conformance.producer import dlpack_arguments
from cai_bridge.conformance.reference import reference_of

# With a broken lab, what ends an array may also raise where nobody can pass it on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("role", planted.CHECKS)
def test_the_kits_own_library_keeps_every_requirement(role, lab):
    lab.rounds = 2  # a GPU has more than one
    report = planted.CHECKS[role](reference_of(role, None, lab), lab=lab)
    # No function in Python fails with an exception set, which is advice.
    failed = {one.name: one.evidence for one in report.failed if one.name != "exchange-errors"}
    assert failed == {}
    lazy = {"cai-lazy", "dlpack-lazy", "exchange-lazy"}
    assert {one.name for one in report.verdicts if one.outcome == "skipped"} <= lazy
    assert sum(one.outcome == "passed" for one in report.verdicts) >= 55


_read = SimulatedLab.read


def read_elsewhere(self, stream, region, name="the read"):
    del region
    spare = self.memory(4096)
    return _read(self, stream, self.words(spare.ptr, 12), name)


# A lab without a current device, that orders nothing, that reads on the host what was there before,
# whose probe sees nothing, whose queued reads see nothing.
LABS = [
    ("producer", SimulatedLab, "current", lambda _: contextlib.nullcontext()),
    ("consumer", SimulatedLab, "current", lambda _: contextlib.nullcontext()),
    ("producer", SimulatedLab, "order", lambda *_: None),
    ("consumer", SimulatedLab, "order", lambda *_: None),
    ("producer", dlpack_arguments, "on_host", lambda _, said: [-1.0] * said.size),
    ("producer", SimulatedLab, "is_behind", lambda *_: False),
    ("producer", SimulatedLab, "read", read_elsewhere),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("role", "owner", "name", "broken"), LABS)
def test_a_right_library_is_not_accused_of_what_a_lab_gets_wrong(
    role, owner, name, broken, lab, monkeypatch
):
    monkeypatch.setattr(owner, name, broken)
    report = planted.CHECKS[role](planted.library(role, "right", {"change": []}), lab=lab)
    accused = {one.name: one.evidence for one in report.failed if one.requirement.level == "must"}
    assert accused == {}
    assert any(LAB_FAILS in one.evidence for one in report.verdicts)


def test_what_another_thread_does_is_waited_for_and_what_it_raises_is_raised_here(lab):
    seen = []

    def work():
        time.sleep(0.05)
        seen.append(threading.get_ident())

    in_another_thread(work, lab)
    assert seen
    assert seen != [threading.get_ident()]
    with pytest.raises(ZeroDivisionError):
        in_another_thread(lambda: 1 / 0, lab)


@pytest.mark.parametrize("bare", [False, True])
def test_a_thread_of_the_kits_has_the_labs_device_unless_it_is_bare(lab, bare):
    here = in_another_thread(lambda: lab.cuda.current_device, lab, bare=bare)
    assert here == (None if bare else 0)


def test_the_lab_leaves_a_threads_current_device_as_it_was():
    with open_lab("simulated") as lab:
        before = lab.cuda.current_device
        with lab.current():
            pass
        assert lab.cuda.current_device == before
