"""Model-based fuzzing of the bridge with objects that change, call back and end themselves.

Hypothesis draws what is called and what foreign code does when it is asked; `machine` says what
has to hold whatever that is. `make test` runs some programs, ``python -m tests.fuzz`` as many as
there is time for.
"""
