"""Copies of a `DLPackView`: how consumers ask for one, and the calls that make it."""

import capsules

from cai_bridge import to_cai

NEWEST = (1, 3)
COPIES = {
    "cuMemcpyAsync",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuMemcpyPeerAsync",
    "cuMemcpy2DAsync",
    "cuMemcpy3DAsync",
    "cuMemcpy3DPeerAsync",
}
CALLS = {*COPIES, "cuMemAllocAsync", "cuMemFreeAsync", "cuMemFree", "cuModuleUnload"}
CALLS |= {"cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize"}


def made(cuda):
    """The calls that queue something or wait, with their streams."""
    return [(call.call, call.stream) for call in cuda.calls if call.call in CALLS]


def copied(view, **wishes):
    """A copy as a consumer takes it in, and what its structure said."""
    capsule = view.__dlpack__(max_version=NEWEST, copy=True, **wishes)
    seen = capsules.read(capsule)
    return to_cai(capsule, stream=-1), seen


def named(cuda, *names):
    """The calls of these names, with their streams."""
    return [(call.call, call.stream) for call in cuda.calls if call.call in names]


def ends(cuda):
    return named(cuda, "cuMemFreeAsync", "cuMemFree", "cuModuleUnload")


def taken(view, **wishes):
    return capsules.take(view.__dlpack__(max_version=NEWEST, copy=True, **wishes))
