"""Each requirement has three libraries that break it, each in a way of its own.

One is in `broken_producers` and `broken_consumers`, and breaks nothing else; the others are planted
in `tests/data/planted.toml`, or in `more_producers`, `more_consumers` and the files beside them.
"""

from __future__ import annotations

import itertools
from collections import Counter

import broken_consumers
import broken_producers
import more_consumers
import more_consumers_dlpack
import more_producers
import more_producers_dlpack
import producers
import pytest
from fakes import FREE_THREADED
from planted import rows

from cai_bridge.conformance import check_consumer, check_producer, requirements

# A faulty library may also raise where nobody can pass it on.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.faulty,
]

SIDES = {
    "producer": (producers.BROKEN, more_producers.ALSO, check_producer),
    "consumer": (broken_consumers.BROKEN, more_consumers.ALSO, check_consumer),
}
ONLY = "breaks nothing else"
KINDS = {
    role: {**{(name, ONLY): kind for name, kind in broken.items()}, **also}
    for role, (broken, also, _) in SIDES.items()
}
WAYS = [(role, *key) for role, kinds in KINDS.items() for key in kinds]


@pytest.mark.parametrize(("role", "name", "what"), WAYS, ids=lambda text: text.replace(" ", "-"))
def test_a_way_to_break_a_requirement_is_found(role, name, what, lab):
    if name == "dlpack-deleter-anywhere" and FREE_THREADED:
        pytest.skip("what the main thread made is let go of by the main thread")
    verdict = SIDES[role][2](KINDS[role][name, what], lab=lab, only=name)[name]
    assert verdict.outcome == "failed", verdict.evidence


@pytest.mark.parametrize("role", SIDES)
def test_each_requirement_is_broken_in_three_ways(role):
    broken, also, _ = SIDES[role]
    count = Counter([*broken, *(name for name, _ in also)])
    planted = (row["caught"] for (side, _), row in rows("planted").items() if side == role)
    count += Counter(itertools.chain.from_iterable(planted))
    # No function in Python can fail with an exception set: all libraries here break that one.
    names = [one.name for one in requirements(role) if one.name != "exchange-errors"]
    assert {name: count[name] for name in names if count[name] < 3} == {}


# They are imported for what they define.
del broken_producers, more_producers_dlpack, more_consumers_dlpack
