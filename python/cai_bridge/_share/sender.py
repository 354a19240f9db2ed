"""The sender's side: `share`, `cancel`, `shares`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from cai_bridge._core import (
    CaiView,
    DLPackView,
    DriverError,
    _IpcDevice,
    _IpcStream,
    from_cai,
    to_cai,
)
from cai_bridge._protocols import SupportsCudaStream

from . import keeper
from .gpu import Block, Gpu, gpu_at
from .wire import MAGIC, parsed

# CUDA_ERROR_INVALID_VALUE, INVALID_HANDLE, NOT_PERMITTED, NOT_SUPPORTED: CUDA exports no handle of
# the memory.
REFUSALS = {1, 400, 800, 801}
WAYS = (
    "memory of cudaMalloc, as the default allocators of PyTorch and CuPy have; a pool that exports "
    "file descriptors, as cuda.core's DeviceMemoryResource with ipc_enabled; or share(x, copy=True)"
)


class Share(NamedTuple):
    """A shared array that receivers may still open, or have open.

    Attributes
    ----------
    handle : bytes
        The handle that `share` returned.
    nbytes : int
        The size of the array.
    waiting, opened : int
        How many more receivers may open it, and how many have it open.
    seconds : float
        The time since it was shared, in seconds.
    """

    handle: bytes
    nbytes: int
    waiting: int
    opened: int
    seconds: float


def share(
    x: object,
    *,
    receivers: int = 1,
    stream: int | SupportsCudaStream | None = None,
    readonly: bool | None = None,
    copy: bool | None = None,
) -> bytes:
    """Let other processes of this machine open an array, without a copy.

    The bridge keeps the owner until every receiver has closed its array or has ended. A receiver's
    work waits for work pending on `x` now. Work queued on the producer's stream after a receiver's
    end waits for the receiver's work. The host waits for neither. Until then nobody may write the
    memory, unless the receivers expect it.

    Parameters
    ----------
    x : array
        An array of any library, or a view. Its memory is from ``cudaMalloc``, or from a pool that
        exports file descriptors. Other memory needs ``copy=True``.
    receivers : int, optional
        How many times the array may be opened.
    stream : stream, optional
        The stream that the array is used on here, as for `to_cai`.
    readonly : bool, optional
        Whether the receivers get the array read-only; by default as `x` is.
    copy : bool, optional
        Whether to share a copy, in a pool of the bridge. A handle of ``cudaMalloc`` memory shows a
        receiver the whole allocation, with the array's neighbours; a copy shows no other array.

    Returns
    -------
    bytes
        The handle. Send it to the other process in any way: a queue, a pipe, Dask, Ray. It works
        for processes of the same user. `cancel` revokes it.

    Raises
    ------
    BufferError
        The memory cannot be shared; the message names the ways out.
    DriverError
        During a graph capture of the array's stream, in a fork, or after an error of the driver.

    Examples
    --------
    The sender, and then the receiver in another process::

        queue.put(cai_bridge.share(x))

        with cai_bridge.open_shared(queue.get()) as view:
            y = cai_bridge.convert(view, "cupy")
    """
    if isinstance(receivers, bool) or not isinstance(receivers, int):
        raise TypeError(f"receivers: got {receivers!r}; allowed: an integer, 1 or more")
    if receivers < 1:
        raise ValueError(f"receivers: got {receivers}; allowed: 1 or more")
    if copy not in (None, True, False):
        raise TypeError(f"copy: got {copy!r}; allowed: None, True, False")
    view: CaiView | DLPackView
    view = taken = to_cai(cast("Any", x), stream=stream, readonly=readonly)
    kind, ordinal = view.device
    if kind != 2 and not copy:
        raise BufferError(f"x: got memory of DLPack's device type {kind}; allowed: {WAYS}")
    gpu = gpu_at(ordinal)
    _IpcDevice.refuse_capture(taken)
    uuid = gpu.device.uuid.hex()
    own = gpu.take_stream()
    shared = keeper.Shared(gpu, view, own)
    try:
        memory = None
        if view.nbytes:
            if copy:
                shared.view = view = _copied(gpu, taken, own)
            memory, shared.export = _exported(gpu, view)
        for _ in range(receivers):
            shared.left.append(to_cai(view, stream=own))
        shared.ready = gpu.take_event()
        own.record(shared.ready)
        shared.info = {
            "uuid": uuid,
            "memory": memory,
            "shape": view.shape,
            "strides": view.strides,
            "typestr": view.typestr,
            "dtype": _dtype(view),
            "readonly": view.readonly,
            "ready": shared.ready.name.hex(),
        }
    except BaseException:
        shared.finish()
        raise
    loop = keeper.started()
    if memory and memory["pool"]:
        memory["pool"] = f"{loop.address.hex()}/{uuid}/{memory['pool']}"
    with keeper.lock:
        loop.shares[shared.token] = shared
    return MAGIC + loop.address + shared.token


def cancel(handle: bytes) -> None:
    """Revoke a handle: no more receivers can open it. Receivers that have it open keep it.

    Parameters
    ----------
    handle : bytes
        The handle that `share` returned in this process. Nothing happens if it is used up or
        revoked.

    Raises
    ------
    ValueError
        The handle belongs to another process.

    Examples
    --------
    >>> from cai_bridge import cancel, share, shares
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda(shared=True) as cuda:
    ...     handle = share(cuda.array([1.0, 2.0]))
    ...     cancel(handle)  # no receiver took it
    ...     shares()
    []
    """
    address, token = parsed(handle)
    loop = keeper.running()
    if loop is None or address != loop.address:
        raise ValueError("handle: got that of another process; allowed: what share() returned here")
    with keeper.lock:
        shared = loop.shares.get(token)
        if shared is None:
            return
        left, shared.left, shared.is_cancelled = shared.left, [], True
        if is_over := shared.is_over:
            del loop.shares[token]
    for view in left:
        keeper.released(view)
    if is_over:
        shared.finish()


def shares() -> list[Share]:
    """Return what this process has shared and still keeps, oldest first.

    Returns
    -------
    list of Share
        Each with its handle, its size, how many receivers may still open it, how many have it open,
        and its age. A share that nobody has opened for a minute is also logged.

    Examples
    --------
    >>> from cai_bridge import share, shares
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda(shared=True) as cuda:
    ...     handle = share(cuda.array([1.0, 2.0], dtype="float32"))
    ...     [(one.nbytes, one.waiting, one.opened) for one in shares() if one.handle == handle]
    [(8, 1, 0)]
    """
    loop = keeper.running()
    if loop is None:
        return []
    now = time.monotonic()
    with keeper.lock:
        return [
            Share(
                MAGIC + loop.address + one.token,
                one.view.nbytes,
                len(one.left),
                one.opened,
                now - one.since,
            )
            for one in loop.shares.values()
        ]


def _exported(
    gpu: Gpu, view: CaiView | DLPackView
) -> tuple[dict[str, Any], Callable[[], int] | None]:
    """Return how a receiver opens a view's memory, and a function that makes the file it needs."""
    device = gpu.device
    start, nbytes, is_legacy, pool = device.allocation(view.ptr)
    if not start <= view.ptr + _reach(view) < start + nbytes:
        raise BufferError(f"x: got memory in several allocations; allowed: {WAYS}")
    offset = view.ptr - start
    try:
        if is_legacy:
            return {"name": device.name_memory(start).hex(), "pool": None, "offset": offset}, None
        if pool is not None:
            os.close(device.export_pool(pool))
            memory = {
                "name": device.name_pointer(start).hex(),
                "pool": f"{pool:x}",
                "offset": offset,
            }
            return memory, lambda: device.export_pool(pool)
    except DriverError as error:
        if error.code not in REFUSALS:
            raise
        text = f"x: got memory that the driver does not hand on ({error}; as under MIG)"
        raise BufferError(f"{text}; allowed: {WAYS}") from error
    raise BufferError(f"x: got memory that the driver does not hand on; allowed: {WAYS}")


def _reach(view: CaiView | DLPackView) -> int:
    """Return how many bytes of an array lie before its first item, because of negative strides."""
    if view.strides is None or 0 in view.shape:
        return 0
    steps = zip(view.shape, view.strides, strict=True)
    return sum((extent - 1) * min(0, stride) for extent, stride in steps)


def _copied(gpu: Gpu, view: CaiView, stream: _IpcStream) -> DLPackView:
    """Copy into the bridge's own pool, which every process can open."""
    source = to_cai(view, stream=stream)
    block = Block(stream, stream.allocate(gpu.pool(), view.nbytes))
    stream.copy(source, block._ptr)
    entries = {
        "shape": view.shape,
        "typestr": view.typestr,
        "data": (block._ptr, view.readonly),
        "strides": None,
        "version": 3,
    }
    made = from_cai(entries, stream=stream, owner=block, dtype=_dtype(view))
    source.release(stream)
    view.release()
    return made


def _dtype(view: CaiView | DLPackView) -> str | None:
    """Return the name of a type that its typestr does not name."""
    return view._dtype_name if view.typestr[1] == "V" else None
