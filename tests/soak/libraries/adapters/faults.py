"""The faults that can be planted, by place, each of which the soak has to find.

In the stand-ins of `dry`; and in the bridge between those of `simulated`.
"""

FAULTS = {
    "dry": ("stale", "early", "die", "hang", "raise"),
    "simulated": ("unordered", "unasked", "hurried", "kept", "called"),
}
