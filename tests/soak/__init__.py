"""Random programs, each right by what the README promises, on the simulated device or elsewhere.

`worlds` has the places where programs run, and each has a room that draws, judges and runs them:
`device` here, and `tests.soak_gpu.room` for libraries and stand-ins. The command, the processes
(`crew`, `zygote`, `child`), what a run comes to (`totals`) and the cutting down of what fails
(`shrink`) are the same for all.

On the simulated device a program is a list of `steps`. The `model` knows what each step promises:
which work is ordered after which, what every read must see, and who is still alive. `generate`
draws programs that the model finds nothing wrong with; `execute` runs them on the simulated device,
which must report nothing, show the promised values, and free what the model says is free.
"""
