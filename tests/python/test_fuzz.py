"""Objects that change, call back and end themselves: some programs of the fuzzer."""

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from fuzz.machine import Bridging, bounded


def test_whatever_foreign_code_does_inside_a_call_views_say_the_same_and_nothing_is_lost():
    run_state_machine_as_test(Bridging, settings=settings(bounded(150), derandomize=True))
