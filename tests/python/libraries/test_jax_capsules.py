"""jaxlib's own entry below the `__dlpack__` of JAX's arrays, asked where it answers the same."""

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


BOTH, ENTRY, PUBLIC = "[('entry', 1), ('public', 1)]", "[('entry', 1)]", "[('public', 1)]"
TWICE = """
    print(take(array()))
    print(take(array()))
"""
ELSEWHERE = "    ArrayImpl.sharding = property(lambda self: SingleDeviceSharding())" + TWICE
SEVERAL = """
    print(take(array(NamedSharding)))
    print(take(array()))
    print(take(array(NamedSharding)))
"""
REFUSED_LATER = """
    take(array())
    refused = array()
    del ArrayImpl.capsule
    print(take(refused))
"""
# What the entry answers, what is taken, and who was asked.
ASKED = {
    "alone once it answered as the public way": (
        *("x.capsule()", TWICE + "    print(take(array(), stream=2))"),
        [BOTH, ENTRY, "[('entry', 2)]"],
    ),
    **{
        f"never again after {answer}": (answer, TWICE, [BOTH, PUBLIC])
        for answer in ("array().capsule()", "None", "1 / 0", "[][0]", "capsules.no_such_name")
    },
    "never where an array has its sharding elsewhere": ("x.capsule()", ELSEWHERE, [PUBLIC, PUBLIC]),
    "not of arrays on several devices": (
        *("x.capsule()", SEVERAL),
        [f"('BufferError', {PUBLIC})", BOTH, f"('BufferError', {PUBLIC})"],
    ),
    "before the public way, which it refuses": (
        *("x.capsule()", REFUSED_LATER, [f"('AttributeError', {BOTH})"]),
    ),
}


@pytest.mark.parametrize("when", ASKED)
def test_the_entry_is_asked(when):
    entry, steps, asked = ASKED[when]
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
    assert done.stdout.splitlines() == asked
