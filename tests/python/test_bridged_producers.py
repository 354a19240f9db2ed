"""The bridge's own views as producers keep what is required, whatever their arrays speak."""

from __future__ import annotations

import producers
import pytest

from cai_bridge.conformance import check_producer
from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.libraries.bridged import BridgedProducer
from cai_bridge.conformance.stand_in import CAI, DLPACK, speaking_only, speaks
from cai_bridge.testing import SimulatedCuda, simulated_cuda

SPEAKS = ["dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare", "exchange", "cai3"]


def speaking(*protocols):
    class Producer(simulated.Producer):
        name = "+".join(protocols)

        def make(self, shape, dtype):
            return SimulatedCuda.current().array(shape=shape, dtype=dtype, speaks=protocols)

    return Producer()


@pytest.mark.some(4)
@pytest.mark.parametrize("door", ["cai", "dlpack"])
@pytest.mark.parametrize("protocol", SPEAKS)
def test_a_view_keeps_every_requirement_that_applies(door, protocol):
    producer = BridgedProducer(speaking(protocol), door)
    verdicts = check_producer(producer).verdicts
    failed = {one.name: one.evidence for one in verdicts if one.outcome == "failed"}
    assert failed == {}
    judged = [one.name for one in verdicts if one.outcome == "passed"]
    pending = {"cai": "cai-pending", "dlpack": "dlpack-pending"}[door]
    assert pending in judged


@pytest.mark.parametrize(
    ("door", "families"), [("cai", ["cai"]), ("dlpack", ["dlpack", "exchange", "both"])]
)
def test_a_view_of_an_array_that_keeps_all_keeps_all(door, families):
    verdicts = check_producer(BridgedProducer(producers.Library(), door)).verdicts
    outcomes = {one.name: one.outcome for one in verdicts}
    assert "failed" not in outcomes.values()
    more = {name for name in outcomes if name.endswith("-extents")}
    for name in outcomes.keys() - producers.WITHOUT - more:
        judged = name.partition("-")[0] in families
        assert outcomes[name] == ("passed" if judged else "skipped"), name


def test_a_stand_in_speaks_one_protocol():
    with simulated_cuda() as cuda:
        both = cuda.array([1.0, 2.0], speaks=("dlpack", "cai"))
        by_cai, by_dlpack = speaking_only("cai", both), speaking_only("dlpack", both)
        assert (speaks(by_cai, CAI), speaks(by_cai, DLPACK)) == (True, False)
        assert (speaks(by_dlpack, CAI), speaks(by_dlpack, DLPACK)) == (False, True)
        assert by_cai.dtype == both.dtype
        assert by_cai.__cuda_array_interface__ == both.__cuda_array_interface__
        assert by_dlpack.__dlpack_device__() == both.__dlpack_device__()
        one = cuda.array([1.0], speaks="cai")
        assert speaking_only("cai", one) is one


def test_what_raises_is_not_read_to_see_whether_it_is_there():
    class Raises:
        @property
        def __dlpack__(self):
            raise KeyError("float8")

    assert speaks(Raises(), DLPACK)
