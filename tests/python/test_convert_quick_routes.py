"""A quick route to a library's arrays: it is taken once it has done what the public one does."""

from __future__ import annotations

import types
from typing import Any

import pytest

from cai_bridge._libraries._library import Quick


@pytest.mark.parametrize("fails", ["it raises", "it makes another array"])
def test_a_quick_route_that_does_not_do_the_same_is_not_taken(fails: str, caplog: Any) -> None:
    calls = []

    def quick(view: Any, stream: Any) -> Any:
        calls.append("quick")
        if fails == "it raises":
            raise AttributeError("gone")
        return (view.size, 1)

    def public(view: Any, stream: Any) -> Any:
        calls.append("public")
        return (view.size, 2)

    route = Quick("library", quick, public, lambda one, other: one == other)
    view = types.SimpleNamespace(size=4)
    with caplog.at_level("DEBUG", logger="cai_bridge"):
        assert route(view, None) == (4, 2)
    assert "library: the bridge uses the public route: " in caplog.text
    calls.clear()
    assert route(view, None) == (4, 2)
    assert calls == ["public"]


def test_a_quick_route_that_does_the_same_is_taken_from_then_on() -> None:
    calls = []
    quick = lambda view, stream: calls.append("quick") or view.size  # noqa: E731
    public = lambda view, stream: calls.append("public") or view.size  # noqa: E731
    route = Quick("library", quick, public, lambda one, other: one == other)
    sizes = [0, 4, 3, 2]
    assert [route(types.SimpleNamespace(size=size), None) for size in sizes] == sizes
    # Arrays of nothing go by the public route, and tell nothing of the other.
    assert calls == ["public", "quick", "public", "quick", "quick", "quick"]
