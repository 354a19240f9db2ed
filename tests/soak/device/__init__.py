"""Programs on the simulated device, with a model of all that it has to do.

The `model` knows what each step promises: which work is ordered after which, what every read must
see, and who is still alive. `generate` draws programs that the model finds nothing wrong with;
`execute` runs them on the simulated device, which must report nothing, show the promised values,
and free what the model says is free. `room` is what the soak has to know of it.
"""
