"""The command's exit statuses."""

OK = 0
"""The answer is yes."""

FAILED = 1
"""The command did what the user asked, and the answer is no."""

USAGE = 2
"""The command cannot do what the user asked. The message says why."""


class UsageError(Exception):
    """The command cannot do what the user asked. The message is for the user."""
