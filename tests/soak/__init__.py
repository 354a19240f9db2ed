"""Random programs, each right by what the README promises, on the simulated device or elsewhere.

A program is a list of `steps`, the same wherever it runs. `worlds` has the places, and each has a
room that draws, judges and runs programs: `device` and `libraries`. The command, the try of each
step (`making`), the processes (`crew`, `zygote`, `child`), what a run comes to (`totals`) and the
cutting down of what fails (`shrink`) are the same for all.
"""
