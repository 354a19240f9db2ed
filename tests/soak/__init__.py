"""Random programs, each right by what the README promises, on the simulated device or elsewhere.

A program is a list of `steps`, the same wherever it runs. `program` has the places, and each has a
room that draws, judges and runs programs: `device` and `libraries`. The command, the try of each
step, the processes (`crew`), the functions that are called (`doors`) and the cutting down of what
fails (`shrink`) are the same for all.
"""
