"""What a producer says may be as long as it has memory for: a refusal copies none of it.

The peak of a process's resident memory tells, each case in a process of its own.
"""

from pathlib import Path

import pytest
from children import DEVICE, assert_quiet

MEASURED = """
    from pathlib import Path

    LONG = 4_000_000

    def peak():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    class One:
        def __index__(self):
            return 1

    class Shown:
        def __init__(self, text):
            self.text = text

        def __repr__(self):
            return self.text

        __str__ = __repr__

    def refused(call, kind, words):
        try:
            call()
        except kind as error:
            assert words in str(error), error
            assert len(str(error)) < 1000, len(str(error))
        else:
            raise AssertionError("taken")

    def cai(**entries):
        made = fakes.interface(x, **entries)
        return lambda: from_cai(fakes.OnlyCai(made))

    # Whatever is made at the first time.
    refused(cai(shape=("1",)), ValueError, "shape[0]")
    refused(cai(data=Shown("?")), ValueError, "data")
    refused(lambda: to_cai(x, stream="1"), TypeError, "stream")
"""
TOLD = """
    before = peak()
    refused({call}, {kind}, {words!r})
    grown = (peak() - before) / 1024
    assert grown < 8, f"grown by {{grown:.0f}} MB"
"""
TEXT = "Shown('x' * 8 * LONG)"
CASES = {
    "shape": ("cai(shape=(1,) * LONG)", "ValueError", "ndim: got 4000000"),
    "shape, a list": ("cai(shape=[1] * LONG)", "ValueError", "ndim: got 4000000"),
    "shape of objects": ("cai(shape=(One(),) * LONG)", "ValueError", "ndim: got 4000000"),
    "strides": ("cai(strides=(4,) * LONG)", "ValueError", "4000000 strides for 1"),
    "strides, a list": ("cai(strides=[4] * LONG)", "ValueError", "4000000 strides for 1"),
    "typestr": ("cai(typestr='<f' + '4' * 8 * LONG)", "ValueError", "typestr"),
    "typestr beyond ASCII": ("cai(typestr='\u00e9' * 8 * LONG)", "ValueError", "typestr"),
    "data": (f"cai(data={TEXT})", "ValueError", "data: got xxx"),
    "version": (
        "cai(version=type('Long', (int,), {'__repr__': lambda _, got='9' * 8 * LONG: got})(2**99))",
        "ValueError",
        "version: got 999",
    ),
    "device=": (
        f"(lambda given, x: lambda: from_cai(x, device=given))({TEXT}, x)",
        "ValueError",
        "device: got xxx",
    ),
    "readonly=": (
        f"(lambda given, x: lambda: to_cai(x, readonly=given))({TEXT}, x)",
        "TypeError",
        "readonly: got xxx",
    ),
    "stream=": (
        f"(lambda given, x: lambda: to_cai(x, stream=given))(fakes.StreamObject({TEXT}), x)",
        "ValueError",
        "__cuda_stream__: got xxx",
    ),
    "a type's name": (
        "(lambda x: lambda: to_cai(x))(type('x' * LONG, (), {})())",
        "TypeError",
        "xxx",
    ),
    "dtype=": (
        "(lambda given: lambda: from_cai(x, dtype=given))('x' * 8 * LONG)",
        "ValueError",
        "dtype: got",
    ),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize("case", CASES)
def test_a_refusal_of_something_long_takes_no_memory(case):
    value, kind, words = CASES[case]
    told = TOLD.format(call="call", kind=kind, words=words)
    assert_quiet(DEVICE, MEASURED, f"\n    call = {value}\n", told)
