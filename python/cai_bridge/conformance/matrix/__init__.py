"""Every producer handed to every consumer, natively and through the bridge.

`run_matrix` judges what a program sees of a hand-over, whatever the protocols say: are the values
right, is the order kept both ways, does the host wait.
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
