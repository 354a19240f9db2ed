"""Programs on the simulated device, with a model of all that it has to do.

The model (`order`, `model`, `ends`, `exports`, `handover`, each on top of the one before) knows
what each step promises: which work is ordered after which, what every read must see, and who is
still alive. `draw` and `scenes` draw programs that the model finds nothing wrong with; `machine`
runs them on the simulated device, which must report nothing, show the promised values, and free
what the model says is free. `room` is what the soak has to know of it.
"""
