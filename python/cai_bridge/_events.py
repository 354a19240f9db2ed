"""The bridge's events, as records of the logger ``cai_bridge``.

Each order that is made or elided is a record of level DEBUG, with what was ordered as attributes:
``door``, ``device``, ``producer``, ``consumer`` (streams), ``order`` and ``why``. While the
logger's effective level is above that, no event is made at all: `logging` clears the logger's level
cache whenever a level changes anywhere, and that is the moment when the extension is told.
"""

import logging
from typing import Any

from cai_bridge import _core

_logger = logging.getLogger("cai_bridge")
_STREAMS = ("producer", "consumer", "stream")

stream_names: dict[int, str] = {}
"""What the streams of the simulated device are called, by their handles; empty without one."""


def _tell() -> None:
    """Tell the extension the lowest level that the logger takes; 0 if logging is off."""
    wanted = max(_logger.getEffectiveLevel(), _logger.manager.disable + 1)
    _core._set_event_level(max(wanted, 1) if wanted <= logging.CRITICAL else 0)


class _LevelCache(dict[int, bool]):
    """The logger's cache of levels, which `logging` clears at every change of a level."""

    def clear(self) -> None:
        super().clear()
        _tell()


def emit(level: int, text: str, fields: dict[str, Any]) -> None:
    """Log one event; called by the extension."""
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
    _logger.addHandler(logging.NullHandler())
    if isinstance(getattr(_logger, "_cache", None), dict):
        _logger._cache = _LevelCache()  # type: ignore[attr-defined]
        _tell()
    else:
        # Without that cache `logging` tells of no change: every event is made, and filtered.
        _core._set_event_level(logging.DEBUG)


_watch()
