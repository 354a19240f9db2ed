"""How the libraries that the kit knows make arrays, and take them in.

Each module imports its library at the top, so a library that is missing is missed when it is asked
for by name. Kernels are run once when an adapter is made: a first launch loads code, which takes
longer than anything can be held back for, and may wait for the device.
"""
