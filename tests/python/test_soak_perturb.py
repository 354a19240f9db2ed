"""A few random programs under perturb, which `make soak-perturb` runs ten thousand of."""

import shutil

import pytest

from cai_bridge._cli.perturbed import LIBRARY
from soak_perturb import LEAST, draw, judge, name, races

pytestmark = pytest.mark.skipif(
    not (LIBRARY.exists() and shutil.which("cc")),
    reason="make perturb builds the library; cc builds the driver",
)


def test_most_racy_programs_differ_and_no_other_one_does():
    found = judge(range(100))
    assert found.programs == 100
    assert not found.wrong, [draw(number) for number in found.wrong]
    assert found.recall >= LEAST, found
    # Both kinds are drawn, or neither line above says much.
    assert 20 <= found.racy <= 90


def test_the_two_operations_that_are_named_are_a_race_of_the_models():
    named = name(range(8))
    assert not named.wrong, named
    assert named.right >= 3, named


def test_the_model_calls_a_wait_that_is_missing_a_race_and_none_else():
    missing = [["fill", 2, 0, 1], ["copy", 3, 1, 0]]
    there = [["fill", 2, 0, 1], ["order", 2, 3], ["copy", 3, 1, 0]]
    by_the_host = [["fill", 2, 0, 1], ["sync", 2], ["copy", 3, 1, 0]]
    blocking = [["fill", 1, 0, 1], ["copy", 0, 1, 0]]
    found = races([missing, there, by_the_host, blocking])
    assert found == [{(0, 1)}, set(), set(), set()]
