"""Hands every producer's array to every consumer, without and with the bridge.

`run_matrix` judges what a program sees of a hand-over, whatever the protocols say: whether the
values are right, whether work is ordered both ways, and whether the host waits.
"""

from .isolated import run_isolated
from .result import ASPECTS, Aspect, Cell, Matrix, Outcome
from .routes import ROUTES, WAYS, Route, advised
from .run import run_matrix

__all__ = [
    "ASPECTS",
    "ROUTES",
    "WAYS",
    "Aspect",
    "Cell",
    "Matrix",
    "Outcome",
    "Route",
    "advised",
    "run_isolated",
    "run_matrix",
]
