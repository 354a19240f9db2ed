"""`cai-bridge perturb` tells the hand-over that lies between the two operations."""

from __future__ import annotations

import re
import textwrap

import pytest
from perturbing import TWO, Perturb, driver, needs, run

__all__ = ["driver", "run"]

pytestmark = needs


@pytest.mark.parametrize("call", ["cupy.asarray(x)", "jnp.array(x)"])
def test_a_hand_over_between_the_two_lines_is_named(call: str, run: Perturb) -> None:
    _, found = run(
        f"""
        class cupy:
            asarray = array = staticmethod(lambda x: x)
        jnp = cupy
        a, b, x, y = stream(), stream(), word(), word()
        for i in range(1, 4):
            launch("fill", a, x, i)
            z = {call}
            launch("copy", b, y, z)
            print(read(y, b))
            order(b, a)
        """,
        named=True,
    )
    assert found["race"]["advice"].startswith(f"between them: z = {call}\n")
    assert "handed over by CAI" in found["race"]["advice"]


TURNS = """
    for i in range(1, 4):
        launch("fill", a, x, i)
        {}
        z = cupy.asarray(x)
        launch("copy", b, y, z)
        print(read(y, b))
        order(b, a)
    """
# What is called between a write and a read, and the hand-over that there is.
BETWEEN = {
    "in a function that neither is in": (
        """
        def write(i):
            launch("fill", a, x, i)
        def never_called(z):
            return cupy.asarray(z)
        def look(z):
            launch("copy", b, y, z)
        for i in range(1, 4):
            write(i)
            look(x)
            print(read(y, b))
            order(b, a)
        """,
        None,
    ),
    "in the function that called both": (
        """
        def look(z):
            launch("copy", b, y, z)
        def write(i):
            launch("fill", a, x, i)
        for i in range(1, 4):
            write(i)
            # not cupy.asarray(y)
            z = cupy.asarray(x)
            look(z)
            print(read(y, b))
            order(b, a)
        """,
        "z = cupy.asarray(x)",
    ),
    "beside one of values of the host's": (
        TURNS.format("labels = torch.as_tensor([1, 2, 3])"),
        "z = cupy.asarray(x)",
    ),
    "one of two": (
        TURNS.format("w = torch.as_tensor(y)"),
        "w = torch.as_tensor(y), or z = cupy.asarray(x)",
    ),
    "before the write, in a loop whose next turn reads": (
        """
        for i in range(1, 4):
            launch("copy", b, y, x)
            print(read(y, b))
            order(b, a)
            v = cupy.asarray(y)
            launch("fill", a, x, i)
        """,
        None,
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_a_hand_over_is_between_them_in_the_function_that_called_both(
    name: str, run: Perturb
) -> None:
    text, expected = BETWEEN[name]
    own = "class cupy:\n    asarray = as_tensor = staticmethod(lambda x: x)\ntorch = cupy\n"
    _, found = run(f"{own}{TWO}\n{textwrap.dedent(text)}", named=True)
    said = re.match(r"between them: (.*)", found["race"]["advice"])
    assert (said and said[1]) == expected, found["race"]
