"""The bridge's events, as records of the logger ``cai_bridge``.

Each wait, made or elided, is a record of level DEBUG with these attributes: ``door``, ``device``,
``producer``, ``consumer`` (streams), ``order`` and ``why``. While the logger's effective level is
above DEBUG, no event is made at all. `logging` clears the logger's level cache whenever any level
changes, and the extension is told at that moment.

`logging` takes longer to import than the bridge, and before its import nobody can ask for events.
"""

from __future__ import annotations

import sys

from cai_bridge import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_logger: logging.Logger
_CRITICAL, _DEBUG = 50, 10
_STREAMS = ("producer", "consumer", "stream")

stream_names: dict[int, str] = {}
"""The simulated device's names of streams, by handle; empty without a simulated device."""


def _tell() -> None:
    """Tell the extension the lowest level that the logger accepts; 0 if logging is off."""
    wanted = max(_logger.getEffectiveLevel(), _logger.manager.disable + 1)
    _core._set_event_level(max(wanted, 1) if wanted <= _CRITICAL else 0)


class _LevelCache(dict[int, bool]):
    """The logger's cache of levels, which `logging` clears at every change of a level."""

    def clear(self) -> None:
        super().clear()
        _tell()


def emit(level: int, text: str, fields: dict[str, Any]) -> None:
    """Log one event. The extension calls this."""
    if _logger.isEnabledFor(level):
        details = " ".join(f"{name}={_shown(name, value)}" for name, value in fields.items())
        _logger.log(level, "%s (%s)", text, details, extra=fields)


def _shown(field: str, value: Any) -> Any:
    """Show a handle in hex, as all messages do, with the stream's name if it has one."""
    if field not in _STREAMS or not isinstance(value, int) or value <= 2:
        return value
    name = stream_names.get(value)
    return f"{value:#x}" if name is None else f"{value:#x} {name!r}"


def _watch() -> None:
    global _logger  # noqa: PLW0603
    import logging  # noqa: PLC0415

    _logger = logging.getLogger("cai_bridge")
    _logger.addHandler(logging.NullHandler())
    if isinstance(getattr(_logger, "_cache", None), dict):
        _logger._cache = _LevelCache()  # type: ignore[attr-defined]
        _tell()
    else:
        # Without this cache `logging` does not tell when a level changes. So every event is made,
        # and `logging` drops it if its level is off.
        _core._set_event_level(_DEBUG)


class _OnceImported:
    """A finder that finds nothing: it calls `then` once a module is imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        finders = [one for one in sys.meta_path if one is not self]
        sys.meta_path[:] = finders
        found = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((spec for spec in found if spec is not None), None)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def run(module: ModuleType) -> None:
                loader.exec_module = execute
                execute(module)
                self.then()

            loader.exec_module = run
        return spec


if "logging" in sys.modules:
    _watch()
else:
    sys.meta_path.insert(0, _OnceImported("logging", _watch))
