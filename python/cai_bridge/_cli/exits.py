"""How the command ends."""

OK = 0
"""All is well."""

FAILED = 1
"""What was asked for was done, and the answer is no."""

USAGE = 2
"""What was asked for cannot be done; the message says why."""


class UsageError(Exception):
    """What was asked for cannot be done; the message is for the user."""
