"""Random programs on the simulated device, each correct by what the README guarantees.

A program is a list of `steps`. The `model` knows what each step promises: which work is ordered
after which, what every read must see, and who is still alive. `generate` draws programs that the
model finds nothing wrong with; `execute` runs them on the simulated device, which must report
nothing, show the promised values, and free what the model says is free. A program that fails is cut
down by `shrink` and printed with the command that replays it.
"""
