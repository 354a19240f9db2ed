"""What the bridge does in random programs, written down: whether a change of the code changed it.

`record` runs programs of the soak and takes down each step, driver call, log record, warning and
exception in order. A difference is no mistake by itself: who wants it writes the files anew.
"""
