"""Finds calls that hand an array over, in the lines between two racing operations."""

from __future__ import annotations

import linecache

_CALLS = {
    "from_dlpack(": "DLPack",
    "__dlpack__(": "DLPack",
    "cupy.asarray(": "CAI",
    "cp.asarray(": "CAI",
    "cupy.array(": "CAI",
    "jnp.asarray(": "CAI",
    "torch.as_tensor(": "CAI",
    "torch.asarray(": "CAI",
    "as_cuda_array(": "CAI",
    "__cuda_array_interface__": "CAI",
}
_LITERALS = set("[({'\"-0123456789")
"""The characters that a literal begins with."""


def handed_over(path: str, first: int, last: int) -> dict[str, str]:
    """Find the hand-overs in these lines of a file: the code, and its protocol."""
    found: dict[str, str] = {}
    for number in range(first, last + 1):
        code = linecache.getline(path, number).strip()
        for call, protocol in _CALLS.items():
            if call not in code or code.startswith("#"):
                continue
            # A literal is a value on the host and no array.
            if not (call.endswith("(") and code.partition(call)[2][:1] in _LITERALS):
                found.setdefault(code, protocol)
    return found


def advice(found: dict[str, str]) -> str:
    """Say what to write instead of these hand-overs."""
    protocols = " or ".join(sorted(set(found.values())))
    return (
        f"between them: {', or '.join(found)}\n"
        f"    an array is handed over by {protocols}, and nobody waits: use "
        "cai_bridge.convert(x, library), which waits there and at the end"
    )
