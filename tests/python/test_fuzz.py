"""Objects that change, call back and end themselves: some programs of the fuzzer, and its power."""

import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import HypothesisException
from hypothesis.stateful import run_state_machine_as_test

from cai_bridge import from_cai, to_cai

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz import machine

LEAKED = []


def leaks(x, stream=None):
    LEAKED.append(x)
    return from_cai(x, stream)


def holds_another(x, stream=None):
    """The view's owner is not who was asked."""
    return from_cai(dict(x.__cuda_array_interface__), stream, owner=object())


def swallows(x, stream=None):
    try:
        return to_cai(x, stream)
    except machine.Interrupt:
        return to_cai(x, stream)


def answers_late(x, stream=None):
    """A view that asks its producer again, for what it said first."""

    class Late:
        typestr = property(lambda _: x.layout[1])

        def __getattr__(self, name):
            return getattr(view, name)

    view = from_cai(x, stream)
    return Late() if isinstance(x, machine.SpeaksCai) else view


def run(*bounds):
    chosen = settings(machine.bounded(*bounds), derandomize=True)
    run_state_machine_as_test(machine.Bridging, settings=chosen)


def test_whatever_foreign_code_does_inside_a_call_views_say_the_same_and_nothing_is_lost():
    run(60)


@pytest.mark.parametrize("broken", [leaks, holds_another, answers_late, swallows])
def test_a_bridge_that_is_broken_is_noticed(broken, monkeypatch):
    monkeypatch.setattr(machine, "to_cai" if broken is swallows else "from_cai", broken)
    with pytest.raises((AssertionError, ExceptionGroup)) as caught:
        run(200, Phase.generate)
    assert not isinstance(caught.value, HypothesisException)
    LEAKED.clear()
