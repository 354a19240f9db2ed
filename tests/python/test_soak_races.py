"""Random programs under `cai-bridge races`, of which `make soak-races` runs ten times as many."""

import shutil

import pytest

from cai_bridge._cli.perturbed import LIBRARY
from soak_races import LEAST, judge_joins, judge_random, judge_shared

pytestmark = pytest.mark.skipif(
    not (LIBRARY.exists() and shutil.which("cc")),
    reason="make perturb builds the library; cc builds the driver",
)


@pytest.mark.some(4)
@pytest.mark.parametrize("start", range(0, 1000, 250))
def test_what_is_proven_of_random_programs_is_a_race_and_most_races_are(start):
    found = judge_random(range(start, start + 250))
    assert not found.wrong, found.wrong
    assert found.recall >= LEAST["random"], found
    # Each racy program has a pair at least, if a suspect.
    assert found.seen == found.racy >= 125, found


@pytest.mark.some(2)
@pytest.mark.parametrize("start", [0, 50])
def test_of_careful_programs_nothing_is_proven_and_of_sloppy_ones_most_races_are(start):
    careful = judge_shared(range(start, start + 50), careful=True)
    assert (careful.racy, careful.wrong) == (0, []), careful
    sloppy = judge_shared(range(start, start + 50), careful=False)
    assert not sloppy.wrong, sloppy.wrong
    assert sloppy.recall >= LEAST["shared"], sloppy
    assert sloppy.racy >= 20, sloppy


def test_of_each_join_exactly_the_forgotten_wait_is_named():
    racy, right, wrong = judge_joins()
    assert (racy, right, wrong) == (21, 21, [])
