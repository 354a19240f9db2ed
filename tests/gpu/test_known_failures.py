"""What the libraries are known not to meet is what they do not meet: each in its own processes."""

from __future__ import annotations

import pytest

from cai_bridge.conformance.isolated import check_isolated
from cai_bridge.conformance.known import known
from cai_bridge.conformance.requirement import Role

# What is not ordered shows by its time, which neighbours on the GPU take.
pytestmark = pytest.mark.alone
SUBJECTS: list[tuple[Role, str]] = [
    *(("producer", name) for name in ("torch", "jax", "cupy", "numba", "tvm-ffi", "rmm")),
    *(("consumer", name) for name in ("torch", "jax", "cupy", "numba", "cuda.core", "tvm-ffi")),
    ("consumer", "rmm"),
]


@pytest.mark.parametrize(("role", "library"), SUBJECTS, ids=str)
def test_the_list_is_what_is_found(role, library, note):
    try:
        report = check_isolated(role, library, where="gpu", limit_s=60)
    except ValueError as missing:
        pytest.skip(str(missing))
    note(report.summary())
    listed = {**known("xfails").get(library, {}), **known("skips").get(library, {})}
    said = {one.name: f"{one.outcome}: {one.evidence}" for one in report.verdicts}
    failed = {one.name for one in report.failed}
    varies = known("varies").get(library, {}).keys()
    wrong = (failed ^ (listed.keys() & said.keys())) - varies
    assert not wrong, "\n".join(f"{name} {said[name]}" for name in sorted(wrong))
