"""After `import cai_bridge.dask` Dask sends views of GPU memory between workers.

A task returns ``to_dlpack(x)``, and the next one calls ``convert(view, library)``. In the same
worker this is the same memory; another worker gets its own copy. The task must make the view, since
only its thread knows the current stream of `x`'s library. Dask serializes in other threads, with
other current streams, so the bridge leaves arrays of other libraries to Dask.

By TCP the memory goes through the host, by UCX from GPU to GPU. The host waits for the array only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np
from dask.sizeof import sizeof
from dask.tokenize import normalize_token
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from cai_bridge._core import CaiView, DLPackView, DriverError, convert, from_cai, to_cai

__all__ = ["DeliveryError", "NoGpuError", "Undelivered"]

View: TypeAlias = CaiView | DLPackView
Header: TypeAlias = dict[str, Any]
Frames: TypeAlias = list[Any]

VERSION = 1


class DeliveryError(RuntimeError):
    """A view could not be sent or received."""


class NoGpuError(DeliveryError):
    """A view arrived in a process without a GPU."""


class Undelivered:
    """Stands for a view that could not be sent or received: using it raises the reason.

    After an error in Dask's own deserialization, tasks would wait for the view forever (distributed
    2026.8). So the error is raised where a task uses the view. Dask may send this object on: it
    keeps the received data, from which another process can make the view.
    """

    def __init__(self, error: Exception, header: Header, frames: Frames) -> None:
        self._error, self._header, self._frames = error, header, frames

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._error, self._header, [bytes(frame) for frame in self._frames])

    def __sizeof__(self) -> int:
        return sum(memoryview(frame).nbytes for frame in self._frames)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise the reason for a view's attributes; Dask looks for attributes of its own."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise self._error

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        raise self._error

    def __dlpack_device__(self) -> NoReturn:
        """Raise the reason."""
        raise self._error

    def __dlpack__(self, **_: object) -> NoReturn:
        """Raise the reason."""
        raise self._error

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._error}>"


def _header(view: View) -> Header:
    """Describe a view for the receiver, to which address, device and stream mean nothing.

    The element type goes by name, since NumPy does not know bfloat16 and 8-bit floats.
    """
    name = view._dtype_name
    if name is None:
        raise TypeError(f"dtype: got {view.typestr}; allowed: a type that DLPack has")
    return {
        "version": VERSION,
        "is_cai": isinstance(view, CaiView),
        "shape": view.shape,
        "typestr": view.typestr,
        "dtype": name,
        "readonly": view.readonly,
    }


def _made(header: Header, ptr: int, stream: int | None, owner: object) -> View:
    """Make the view again, of C-contiguous memory at `ptr` that is ready on `stream`."""
    said = {
        "shape": tuple(header["shape"]),
        "typestr": header["typestr"],
        "data": (ptr, False),
        "version": 3,
        "stream": stream,
    }
    view = from_cai(
        said,
        owner=owner,
        stream=-1 if stream is None else None,
        dtype=header["dtype"],
        readonly=header["readonly"],
    )
    return to_cai(view) if header["is_cai"] else view


def _to_host(view: View) -> tuple[Header, Frames]:
    """Copy the array to the host, which waits for the array's stream."""
    header, host = _header(view), np.ascontiguousarray(convert(view, "numpy"))
    return header, [host.reshape(-1).view("u1").data]


def _from_host(header: Header, frames: Frames) -> View:
    """Copy the bytes to the current GPU."""
    host = np.frombuffer(frames[0] if frames else b"", dtype="u1")
    there = convert(host, "dlpack", copy=True)
    return _made(header, there.ptr, there.stream, there)


def _to_frame(view: View) -> tuple[Header, Frames]:
    """Lend the memory to UCX, which knows no stream, after the host has waited for it."""
    header = _header(view)
    if view._fields()[-1] is not None:
        view = convert(view, "dlpack", copy=True)
    view.wait()
    said = {
        "shape": (view.nbytes,),
        "typestr": "|u1",
        "data": (view.ptr, view.readonly),
        "version": 3,
        "stream": None,
    }
    return header, [to_cai(from_cai(said, owner=view, stream=-1))] if view.nbytes else []


def _from_frame(header: Header, frames: Frames) -> View:
    """Take over memory that UCX has finished writing."""
    if not frames:
        return _from_host(header, frames)
    ptr, _ = frames[0].__cuda_array_interface__["data"]
    return _made(header, ptr, None, frames[0])


def _sending(send: Callable[[View], tuple[Header, Frames]]) -> Callable[..., tuple[Header, Frames]]:
    """Send the reason instead of a view that cannot be sent."""

    def sent(view: View) -> tuple[Header, Frames]:
        try:
            return send(view)
        except Exception as error:
            return _reason(error), []

    return sent


def _reason(error: Exception) -> Header:
    return {"version": VERSION, "error": f"{type(error).__name__}: {error}"}


def _on(undelivered: Undelivered) -> tuple[Header, Frames]:
    return undelivered._header, undelivered._frames


def _receiving(
    receive: Callable[[Header, Frames], View], *, on_host: bool
) -> Callable[..., View | Undelivered]:
    """Return the reason instead of a view that cannot be received, and keep bytes on the host."""

    def received(header: Header, frames: Frames) -> View | Undelivered:
        try:
            if header["version"] != VERSION:
                raise DeliveryError(
                    f"version: got {header['version']} from another process; allowed: {VERSION}; "
                    "install one version of cai_bridge everywhere"
                )
            if "error" in header:
                raise DeliveryError(f"the view could not be sent: {header['error']}")
            return receive(header, frames)
        except Exception as failed:
            error = _explained(failed) if isinstance(failed, DriverError) else failed
            what = (header, frames) if on_host else (_reason(error), [])
            return Undelivered(error, *what)

    return received


def _explained(error: DriverError) -> Exception:
    if error.call is not None:
        return DeliveryError(f"the view could not be received: {error}")
    return NoGpuError(
        "a view of GPU memory arrived in a process without a GPU; allowed: a GPU in each process, "
        f'or convert(x, "numpy") as what the task returns ({error})'
    )


def _token(_: View) -> tuple[str, str]:
    """Give each view a key of its own, since the contents of an address change."""
    return "cai_bridge", uuid.uuid4().hex


def _nbytes(view: View) -> int:
    return view.nbytes


for _kind in (CaiView, DLPackView):
    dask_serialize.register(_kind, _sending(_to_host))
    dask_deserialize.register(_kind, _receiving(_from_host, on_host=True))
    cuda_serialize.register(_kind, _sending(_to_frame))
    cuda_deserialize.register(_kind, _receiving(_from_frame, on_host=False))
    sizeof.register(_kind, _nbytes)
    normalize_token.register(_kind, _token)
dask_serialize.register(Undelivered, _on)
dask_deserialize.register(Undelivered, _receiving(_from_host, on_host=True))
