"""The subjects of a command: modules, expressions in them, and adapters of libraries."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .exits import UsageError
from .text import said
from .theirs import guarded


def module_named(name: str, subject: str) -> ModuleType:
    """Import a module, also from the working directory.

    Raises
    ------
    UsageError
        The import fails.
    """
    file = Path(name)
    if file.suffix == ".py" or file.name != name:
        raise UsageError(
            f"got {subject!r}; allowed: the name of a module before the colon, such as {file.stem}"
        )
    _look_here()
    with guarded(f"{subject!r} does not import: "):
        return importlib.import_module(name)


def _look_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        # `python -m` puts the working directory there. An installed script does not.
        sys.path.insert(0, here)


def value_of(subject: str) -> Any:
    """Evaluate ``module:expression`` in the module's namespace.

    Raises
    ------
    UsageError
        The subject does not have this form, or the import or the expression fails.
    """
    module, _, expression = subject.partition(":")
    if not module or not expression.strip():
        raise UsageError(f"got {subject!r}; allowed: module:expression, such as mymodule:make()")
    found = module_named(module, subject)
    with guarded(f"{expression!r} raised "):
        # The user typed this expression, as with `python -c`.
        return eval(expression, dict(vars(found)))  # noqa: S307


def roles_of(source: Any) -> tuple[str, ...]:
    """Return the roles of an adapter, a subclass or a function.

    A function with one argument imports arrays, and one with two arguments makes them.
    """
    from cai_bridge.conformance import ConsumerAdapter, ProducerAdapter

    kind = source if isinstance(source, type) else type(source)
    roles = [
        role
        for role, adapter in (("producer", ProducerAdapter), ("consumer", ConsumerAdapter))
        if issubclass(kind, adapter)
    ]
    if roles or not callable(source):
        return tuple(roles)
    try:
        count = len(inspect.signature(source).parameters)
    except (TypeError, ValueError):
        return ()
    return {1: ("consumer",), 2: ("producer",)}.get(count, ())


def adapters_named(subject: str, role: str) -> dict[str, Any]:
    """Find the adapters of a subject.

    Parameters
    ----------
    subject : str
        A library with an adapter in the kit, or ``module:factory``.
    role : str
        ``"producer"``, ``"consumer"`` or ``"both"``; empty for the roles that the subject has.

    Returns
    -------
    dict
        An adapter for each role.

    Raises
    ------
    UsageError
        There is no such subject, or it has no such role.
    """
    from cai_bridge.conformance import consumer_named, producer_named

    find = {"producer": producer_named, "consumer": consumer_named}
    found, reasons = {}, []
    _look_here()
    for one in _roles_asked(subject, role):
        with guarded(f"{subject!r} does not import: "):
            try:
                found[one] = find[one](subject)
            except (ValueError, TypeError) as error:
                reasons.append(said(error).partition(": ")[2])
    if reasons and (role or not found):
        raise UsageError(reasons[0])
    return found


def _roles_asked(subject: str, role: str) -> tuple[str, ...]:
    from cai_bridge.conformance.named import array_class

    asked = ("producer", "consumer") if role in ("", "both") else (role,)
    module, colon, path = subject.partition(":")
    if not colon or subject.endswith(")"):
        # A library, or the bridge's view of a library: the kit knows both.
        return asked
    source: Any = module_named(module, subject)
    for part in path.split("."):
        if not hasattr(source, part):
            raise UsageError(f"subject: got {subject!r}, but {module} has no {path!r}")
        source = getattr(source, part)
    spoken = array_class(source)
    if spoken:
        raise UsageError(
            f"subject: got {subject!r}, which is a class of arrays: it has {spoken}; allowed: an "
            "adapter of them, or a function of a shape and the name of an element type"
        )
    roles = roles_of(source)
    if not role and not roles:
        raise UsageError(
            f"subject: got {subject!r}, which may make or take arrays; pass --role producer or "
            "--role consumer"
        )
    missing = [one for one in asked if one not in roles]
    if role and missing and _is_adapter(source):
        raise UsageError(f"subject: got {subject!r}, which is no {missing[0]}")
    return asked if role else roles


def _is_adapter(source: Any) -> bool:
    from cai_bridge.conformance import ConsumerAdapter, ProducerAdapter

    kind = source if isinstance(source, type) else type(source)
    return issubclass(kind, (ProducerAdapter, ConsumerAdapter))
