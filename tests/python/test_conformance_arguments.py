"""What the kit's functions are given: wrong arguments, and what has no name."""

from __future__ import annotations

import functools

import pytest
from producers import Library

from cai_bridge.conformance import ConsumerAdapter, check_consumer, check_producer, open_lab


class WithArguments(Library):
    def __init__(self, depth):
        self.depth = depth

    def make(self, shape, dtype):
        raise ZeroDivisionError


def fail(by, *_):
    raise ZeroDivisionError(by)


@pytest.mark.parametrize(
    "make",
    [lambda *_: 1 / 0, functools.partial(fail, "partial"), WithArguments(3)],
    ids=["lambda", "partial", "instance"],
)
def test_a_program_of_what_has_no_name_says_where_to_put_it(make):
    program = check_producer(make, only="cai-shape").failed[0].program
    assert "p = as_producer(...)  # what you gave to check_producer" in program


Mistyped = type("Mistyped", (Library,), {"dtypes": "float32"})
Odd = type("Odd", (ConsumerAdapter,), {"doors": ("nope",)})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: check_producer(ConsumerAdapter), TypeError, "the class ConsumerAdapter"),
        (lambda: check_producer(ConsumerAdapter()), TypeError, "got ConsumerAdapter"),
        (lambda: check_consumer(Library), TypeError, "the class Library"),
        (lambda: check_producer(WithArguments), TypeError, "which takes arguments"),
        (lambda: check_producer(Library, only=3), TypeError, "only: got int"),
        (lambda: check_producer(Library, only=b"cai-shape"), TypeError, "only: got bytes"),
        (lambda: check_producer(Library, only=()), ValueError, "only: got no name"),
        (lambda: check_producer(Mistyped), TypeError, "dtypes: got a str; allowed: a tuple of n"),
        (lambda: check_consumer(Odd), ValueError, "doors: got 'nope'"),
        (
            lambda: open_lab("nowhere"),
            ValueError,
            "where: got 'nowhere'; allowed: None, 'simulated' or 'gp",
        ),
    ],
)
def test_a_wrong_argument_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
