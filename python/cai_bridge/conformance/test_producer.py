"""The requirements on a producer: one test per requirement, for each ``--cai-producer``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cai_bridge.pytest_plugin import make_tests, run_case

if TYPE_CHECKING:
    import pytest

    from cai_bridge.conformance import ProducerAdapter
    from cai_bridge.pytest_plugin import Case


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the tests."""
    make_tests(metafunc, "producer")


def test_producer(adapter: ProducerAdapter, case: Case) -> None:
    """Judge one requirement."""
    run_case(adapter, case)
