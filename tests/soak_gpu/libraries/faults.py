"""The faults that can be planted in the stand-ins of `dry`, each of which the soak has to find."""

FAULTS = ("stale", "early", "die", "hang", "raise")
