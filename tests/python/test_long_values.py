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

    def refused(call, words):
        try:
            call()
        except (TypeError, ValueError) as error:
            assert words in str(error), error
            assert len(str(error)) < 1000, len(str(error))
        else:
            raise AssertionError("taken")

    def cai(**entries):
        made = fakes.interface(x, **entries)
        return lambda: from_cai(fakes.OnlyCai(made))

    # Whatever is made at the first time.
    refused(cai(shape=("1",)), "shape[0]")
    refused(cai(data=Shown("?")), "data")
    refused(lambda: to_cai(x, stream="1"), "stream")
    text = Shown("x" * 8 * LONG)
"""
TOLD = """
    before = peak()
    refused(call, {words!r})
    grown = (peak() - before) / 1024
    assert grown < 8, f"grown by {{grown:.0f}} MB"
"""
CASES = {
    "cai(shape=(1,) * LONG)": "ndim: got 4000000",
    "cai(shape=[1] * LONG)": "ndim: got 4000000",
    "cai(shape=(One(),) * LONG)": "ndim: got 4000000",
    "cai(strides=(4,) * LONG)": "4000000 strides for 1",
    "cai(strides=[4] * LONG)": "4000000 strides for 1",
    "cai(typestr='<f' + '4' * 8 * LONG)": "typestr",
    "cai(typestr='\u00e9' * 8 * LONG)": "typestr",
    "cai(data=text)": "data: got xxx",
    "cai(version=type('V', (int,), {'__repr__': lambda _: text.text})(2**99))": "version: got xxx",
    "lambda: from_cai(x, device=text)": "device: got xxx",
    "lambda: to_cai(x, readonly=text)": "readonly: got xxx",
    "lambda one=fakes.StreamObject(text): to_cai(x, stream=one)": "__cuda_stream__: got xxx",
    "lambda one=type('x' * LONG, (), {})(): to_cai(one)": "xxx",
    "lambda: from_cai(x, dtype=text.text)": "dtype: got",
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize("call", CASES)
def test_a_refusal_of_something_long_takes_no_memory(call):
    assert_quiet(DEVICE, MEASURED, f"\n    call = {call}\n", TOLD.format(words=CASES[call]))
