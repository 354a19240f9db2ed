"""Further producers that break a requirement, each another way than the one of `broken_producers`.

They are written from the specifications: what a library's author may get wrong of a sentence there.
`ALSO` has them by the requirement and what they do; here a producer may break others, too. They
stand in the files whose names begin with this one's.
"""

from __future__ import annotations

from producers import EVERY, Array, Library, speaking

ALSO: dict[tuple[str, str], type[Library]] = {}


def also(requirement, what, doors=EVERY, table=None, **methods):
    """Define a copy of the library that breaks a requirement in another way."""
    kind = speaking("Another", doors, table, **methods)
    ALSO[requirement, what] = type("Another", (Library,), {"array": kind, "name": what})


def without(*names):
    def interface(self):
        said = Array.interface(self)
        return {name: said[name] for name in said if name not in names}

    return interface


CAI, DLPACK, EXCHANGE = ("cai",), ("dlpack",), ("exchange",)
