"""What the Python functions say of wrong arguments, word for word: the rows of arguments.toml."""

import builtins
import pickle
from contextlib import ExitStack

import numpy as np
import pytest
from contract import row_id, rows

import cai_bridge


def enter(*contexts):
    """Enter contexts, one inside the other."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)


def generator():
    yield


class Huge:
    def __index__(self):
        return 2**200

    def __repr__(self):
        return "<a.b huge>"


class Seven(int):
    """Two, for `operator.index`."""

    def __index__(self):
        return 7


class Anything:
    def __getattr__(self, name):
        return Anything()

    def __call__(self, *_, **__):
        return Anything()


class SaysInt:
    @property
    def __class__(self):
        return int

    def __repr__(self):
        return "<no int>"


class Mute:
    def __repr__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "row", [*rows("arguments", "argument"), *rows("arguments", "unusual")], ids=row_id
)
def test_a_wrong_argument_is_refused_in_these_words(row, cuda, tmp_path):
    x = cuda.array([1.0, 2.0])
    names = {
        **vars(cai_bridge),
        "cai_bridge": cai_bridge,
        "x": x,
        "interface": cai_bridge.to_cai(x).__cuda_array_interface__,
        "path": tmp_path / "trace.json",
        "enter": enter,
        "generator": generator,
        "huge": Huge(),
        "seven": Seven(-2),
        "mute": Mute(),
        "anything": Anything(),
        "no_int": SaysInt(),
        "two": np.array([1, 2]),
        "pickle": pickle,
    }
    expected = getattr(cai_bridge, row["class"], None) or getattr(builtins, row["class"])
    with pytest.raises(expected) as caught:
        eval(row["program"], names)
    assert str(caught.value) == row["message"]
    # What is refused opens no file; of two traces the first is open.
    assert any(tmp_path.iterdir()) == ("trace(path), " in row["program"])
    # The device reports a handle that no stream has, too.
    cuda.clear_reports()
