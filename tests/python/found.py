"""What the happens-before check found."""


def kinds(cuda):
    """The kinds of all reports, in their order."""
    return [report.kind for report in cuda.reports]
