"""Adapters of the libraries that the kit knows.

Each module imports its library at the top, so a missing library raises when its name is asked for.
Each adapter runs its kernels once when it is made: a first launch loads code, which takes longer
than a hold lasts, and may wait for the device.
"""
