"""Why no work of a program was seen."""

from __future__ import annotations

from .perturbed import Run


def why(run: Run) -> str:
    """Say why no work was seen."""
    from cai_bridge.conformance.lab import cuda

    if any(run.functions.values()):
        return "the program called the CUDA driver, and queued no work"
    if why := cuda.why_no_gpu():
        return f"there is no GPU to use here ({why}); `cai-bridge doctor` looks at the driver"
    return (
        "the program did not call the CUDA driver, or it is linked statically, or it started its "
        "work with LD_PRELOAD removed from the environment"
    )
