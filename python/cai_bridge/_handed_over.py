"""Finds calls that hand an array over, in the lines between two racing operations."""

from __future__ import annotations

import linecache

_CALLS = {
    "from_dlpack(": "DLPack",
    "__dlpack__(": "DLPack",
    "cupy.asarray(": "CAI",
    "cp.asarray(": "CAI",
    "cupy.array(": "CAI",
    "cp.array(": "CAI",
    "jnp.asarray(": "CAI",
    "jnp.array(": "CAI",
    "torch.as_tensor(": "CAI",
    "torch.asarray(": "CAI",
    "as_cuda_array(": "CAI",
    "__cuda_array_interface__": "CAI",
}
_OURS = ("convert(", "to_cai(", "to_dlpack(", "from_cai(")
BRIDGE = "the bridge"
_LITERALS = set("[({'\"-0123456789")
"""The characters that a literal begins with."""


def handed_over(path: str, first: int, last: int) -> dict[str, str]:
    """Find the hand-overs in these lines of a file: the code, and its protocol.

    The bridge's own calls, which order what they know of, count where there is no other.
    """
    found: dict[str, str] = {}
    ours: dict[str, str] = {}
    for number in range(first, last + 1):
        code = linecache.getline(path, number).strip()
        if code.startswith("#"):
            continue
        for call, protocol in _CALLS.items():
            if call not in code:
                continue
            # A literal is a value on the host and no array.
            if not (call.endswith("(") and code.partition(call)[2][:1] in _LITERALS):
                found.setdefault(code, protocol)
        if any(call in code for call in _OURS):
            ours[code] = BRIDGE
    return found or ours


def advice(found: dict[str, str]) -> str:
    """Say what to write instead of these hand-overs."""
    between = f"between them: {', or '.join(found)}\n    "
    if BRIDGE not in found.values():
        protocols = " or ".join(sorted(set(found.values())))
        return (
            f"{between}an array is handed over by {protocols}, and nobody waits: use "
            "cai_bridge.convert(x, library), which waits there and at the end"
        )
    if any("stream=-1" in code for code in found):
        return f"{between}stream=-1 asks for no order: leave it out, or name the consumer's stream"
    return (
        f"{between}the bridge waits for the stream that x's library works on at that line. If the "
        "work is on another one, name it: convert(from_cai(x, stream=side), library)"
    )
