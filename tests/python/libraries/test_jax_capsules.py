"""jaxlib's own entry below the `__dlpack__` of JAX's arrays, asked where it answers the same."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

WORLD = """
    import sys, types
    import capsules
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    class SingleDeviceSharding: ...
    class NamedSharding: ...
    SingleDeviceSharding.__module__ = NamedSharding.__module__ = "jax.sharding"

    asked = []
    class ArrayImpl:
        def __init__(self, memory, sharding=SingleDeviceSharding):
            self.memory, self._sharding = memory, sharding()

        @property
        def sharding(self):
            return self._sharding

        def capsule(self):
            return capsules.HandMade(self.memory.ptr, owner=self.memory, form="legacy").capsule()

        def __dlpack__(self, *, stream=None, max_version=None):
            asked.append(("public", stream))
            if isinstance(self.sharding, NamedSharding):
                raise BufferError("to_dlpack can only pack an array on a singular device")
            return self.capsule()

        def __dlpack_device__(self):
            return (2, 0)

    ArrayImpl.__module__ = "jaxlib._jax"

    def entry(x, stream=None):
        asked.append(("entry", stream))
        return {entry}

    sys.modules["jaxlib"] = types.ModuleType("jaxlib")
    sys.modules["jaxlib._jax"] = types.ModuleType("jaxlib._jax")
    sys.modules["jaxlib._jax"].buffer_to_dlpack_managed_tensor = entry

    with simulated_cuda() as cuda:
        def array(*sharding):
            return ArrayImpl(cuda.array([1.0] * 4, speaks=()), *sharding)

        def take(x, **how):
            asked.clear()
            try:
                assert to_cai(x, **how).ptr == x.memory.ptr
            except Exception as error:
                return type(error).__name__, asked[:]
            return asked[:]

        {steps}
"""


def run(entry: str, steps: str) -> list[str]:
    lines = textwrap.dedent(steps).strip().replace("\n", "\n        ")
    program = textwrap.dedent(WORLD.replace("{entry}", entry).replace("{steps}", lines))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.splitlines()


def test_the_entry_is_asked_alone_once_it_answered_as_the_public_way_did():
    steps = """
        print(take(array()))
        print(take(array()))
        print(take(array(), stream=2))
    """
    assert run("x.capsule()", steps) == [
        "[('entry', 1), ('public', 1)]",
        "[('entry', 1)]",
        "[('entry', 2)]",
    ]


@pytest.mark.parametrize(
    "entry", ["array().capsule()", "None", "1 / 0", "[][0]", "capsules.no_such_name"]
)
def test_an_entry_that_answers_something_else_is_never_asked_again(entry):
    steps = """
        print(take(array()))
        print(take(array()))
    """
    assert run(entry, steps) == ["[('entry', 1), ('public', 1)]", "[('public', 1)]"]


def test_the_entry_is_never_asked_where_an_array_has_its_sharding_elsewhere():
    steps = """
        ArrayImpl.sharding = property(lambda self: SingleDeviceSharding())
        print(take(array()))
        print(take(array()))
    """
    assert run("x.capsule()", steps) == ["[('public', 1)]", "[('public', 1)]"]


def test_arrays_on_several_devices_go_the_public_way_which_refuses_them():
    steps = """
        print(take(array(NamedSharding)))
        print(take(array()))
        print(take(array(NamedSharding)))
    """
    assert run("x.capsule()", steps) == [
        "('BufferError', [('public', 1)])",
        "[('entry', 1), ('public', 1)]",
        "('BufferError', [('public', 1)])",
    ]


def test_what_the_entry_refuses_later_the_public_way_is_asked_for():
    steps = """
        take(array())
        refused = array()
        del ArrayImpl.capsule
        print(take(refused))
    """
    assert run("x.capsule()", steps) == ["('AttributeError', [('entry', 1), ('public', 1)])"]
