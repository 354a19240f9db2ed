from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self, TypeAlias, TypeVar, final, overload

from typing_extensions import CapsuleType

from cai_bridge._protocols import (
    ExportsDLPack,
    SupportsCudaArrayInterface,
    SupportsCudaStream,
    SupportsDLPack,
)

__all__ = [
    "CaiView",
    "DLPackView",
    "DriverError",
    "HostSyncWarning",
    "_CallArgument",
    "_Converter",
    "_CurrentStream",
    "_Ndarrays",
    "_Recording",
    "_View",
    "__version__",
    "_ask_for_streams",
    "_detached",
    "_dtypes",
    "_end",
    "_forget_habits",
    "_habits",
    "_imported",
    "_plain_types",
    "_set_event_level",
    "_settle",
    "_shown",
    "_start_trace",
    "_stop_trace",
    "_to_numpy",
    "_unraisable",
    "_xla_handler",
    "_xla_said",
    "convert",
    "from_cai",
    "to_cai",
    "to_dlpack",
]

__version__: Final[str]

_Stream: TypeAlias = int | SupportsCudaStream | None
_T = TypeVar("_T")

_Array: TypeAlias = SupportsDLPack | ExportsDLPack | SupportsCudaArrayInterface | CapsuleType

class DriverError(RuntimeError):
    """A call of the CUDA driver failed, or there is no driver.

    Attributes
    ----------
    call : str or None
        The driver's entry point, such as ``cuEventRecord``.
    code : int or None
        The ``CUresult``.
    """

    call: str | None
    code: int | None

class HostSyncWarning(RuntimeWarning):
    """An array named no stream, so the host waited for the device.

    Warned once for each type. With ``stream=``, the stream of the array's pending work, the host does not wait.
    """

class _View:
    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, in items. DLPack lanes are a trailing dimension."""
    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in bytes, one for each dimension. Refused for elements of no whole number of bytes."""
    @property
    def typestr(self) -> str:
        """The element type as a typestr of NumPy's array interface; bfloat16 is ``<V2``, 8-bit
        floats ``|V1``. Refused for a type that only DLPack has.
        """
    @property
    def dtype(self) -> Any:
        """The element type as a ``numpy.dtype``: for bfloat16 and 8-bit floats that of ``ml_dtypes`` if that
        package is installed and has it, else a void type of their size. Refused for a type that only
        DLPack has.
        """
    @property
    def itemsize(self) -> int:
        """The size of an item, in bytes. Refused for elements of no whole number of bytes."""
    @property
    def ndim(self) -> int:
        """The number of dimensions."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    @property
    def size(self) -> int:
        """The number of items."""
    @property
    def nbytes(self) -> int:
        """The bytes of all items, without the gaps between them."""
    @property
    def ptr(self) -> int:
        """The address of the first item; 0 for an array without items."""
    @property
    def device(self) -> tuple[int, int]:
        """``(device_type, device_id)`` in DLPack's numbers: 2 CUDA, 3 pinned host, 13 managed memory."""
    @staticmethod
    def __array__(*_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuses: NumPy would otherwise make an array of objects, with the view as its item."""
    @property
    def _dtype_name(self) -> str | None: ...
    def _fields(self) -> tuple[int, int, int, tuple[int, ...], Any, tuple[int, ...] | None]: ...
    @property
    def readonly(self) -> bool:
        """Whether the memory is read-only."""
    @property
    def stream(self) -> int | None:
        """The stream that the array is ready on: 1, 2, a handle, or None if nothing is pending."""
    @property
    def owner(self) -> Any:
        """The producer's object, which the view keeps alive. None after `release`, and for memory that came as a
        managed tensor without an object.
        """
    def wait(self) -> None:
        """Makes the host wait for the pending work on the array.

        Call it before code that takes an address and knows no stream, such as MPI, UCX and file
        libraries. Call it whether that code reads the memory or writes it. From then on ``stream`` and
        the dict's ``stream`` are None, so a reader of the dict does not wait for later work. If the
        producer had named no stream and names one later, the dict has that stream. Another ``wait()``
        and later hand-overs by DLPack wait for the work that has been queued on the array's stream by
        then. Other threads run meanwhile, and graph captures of other streams continue.

        The host waits only for the array's stream and, if the producer's dict names another stream by
        now, for that stream. If nothing keeps the array's stream alive, the host waits for all work in
        the stream's context, with a warning in the log. To avoid this, pass a stream object and not a
        bare handle.

        Raises
        ------
        BufferError
            The view was released.
        DriverError
            The array's stream is being captured, or it is the legacy default stream while a blocking
            stream is being captured; or a call of the CUDA driver failed.

        Notes
        -----
        CUDA Array Interface (Version 3), "Synchronization".
        """
    def release(self, stream: _Stream = None) -> None:
        """Gives the memory back to its producer; the view then refuses to export.

        The producer's stream waits for the consumer's, so the producer's next work on the memory runs
        after the consumer's queued work. The host waits only if nothing keeps one of these streams alive.
        The end of a ``with`` block and the last reference to the view do the same. So does the end of a
        capsule that the view handed out, for the stream that the consumer named.

        Such capsules keep the producer alive. A CAI dict does not: release a ``CaiView`` only after
        all work on every array that a consumer made from it is queued.
        A second call does nothing.

        Parameters
        ----------
        stream : None, int or stream object, optional
            One more stream that the consumer worked on: 1, 2, a handle, or an object with
            ``__cuda_stream__``. None: no other. -1: the consumer's work is done, and nothing waits.

        Raises
        ------
        ValueError, TypeError
            A malformed stream, or one of another device.
        DriverError
            A call of the CUDA driver failed. The view is as before, and you may release it again.

        Notes
        -----
        CUDA Array Interface (Version 3), "Lifetime management", "Streams".
        """
    def __del__(self) -> None:
        """Runs when the garbage collector has found the view. If only a Python object keeps the memory, makes
        the end's waits now, while that object still works: the collector clears garbage in any order. If
        that fails, the end itself tries again.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class CaiView(_View):
    """An array that speaks the CUDA Array Interface, version 3, and nothing else.

    `to_cai` makes it. Consumers that know both protocols pick one by their own rules, so a view speaks
    one protocol only.
    """
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The dict of the CUDA Array Interface, version 3: a new one each time.

        ``shape`` in items, ``typestr``, ``data`` as ``(pointer, read-only)``, ``strides`` in bytes or
        None for C-contiguous, ``version`` 3, ``stream`` None, 1, 2 or a handle.

        Raises
        ------
        AttributeError
            The view was released.
        """

@final
class DLPackView(_View):
    """An array that speaks DLPack and nothing else: ``__dlpack__``, ``__dlpack_device__`` and, on the
    type, the exchange API.

    `to_dlpack` and `from_cai` make it. Consumers that know both protocols pick one by their own rules,
    so a view speaks one protocol only.
    """

    __dlpack_c_exchange_api__: Final[CapsuleType]
    def __dlpack__(
        self,
        stream: _Stream = None,
        *,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A capsule with the array, or with a copy of it, usable on the consumer's stream.

        The consumer's stream waits for the producer's by an event. The host waits until a copy in host
        memory is complete. Without `stream` and another device it also waits until pinned or managed
        memory is ready: NumPy names no stream and reads on the CPU.

        Parameters
        ----------
        stream : None, int or stream object, optional
            The consumer's stream, on the device for which the consumer asks: 1 or None is the legacy
            default stream, 2 the per-thread one, others are handles. -1: no stream waits. 0 is
            ambiguous, and refused.
        max_version : tuple of (int, int), optional
            The newest DLPack version that the consumer knows. From (1, 0) on the capsule is versioned, and
            a flag marks a copy.
        dl_device : tuple of (int, int), optional
            The device for the consumer. None or the array's own device: the array as it is, or with
            ``copy=True`` a copy. ``(2, id)``, another GPU: a copy there. Managed and pinned memory is
            copied there only with ``copy=True``, since every GPU reaches it. ``(1, 0)``, the CPU: a copy
            in host memory. With ``copy=False``, managed or pinned memory is exported to the CPU as it is,
            once the host has waited; other memory is refused.
        copy : bool, optional
            None copies only if `dl_device` needs a copy, True always, False never. Without another device
            in `dl_device`, a copy of managed or pinned memory is on its GPU if `stream` is named, else on
            the CPU: a reader on the CPU names no stream.

        Returns
        -------
        capsule
            Named ``dltensor_versioned``, or ``dltensor`` if `max_version` is missing or below (1, 0). A copy
            is C-contiguous, aligned to 256 bytes and writable.

        Raises
        ------
        BufferError
            A device that this array cannot be on; ``copy=False`` if a copy is needed; a copy larger than
            host memory; read-only memory, not copied, in a legacy capsule; a released view.
        ValueError, TypeError
            A malformed argument.
        DriverError
            A call of the CUDA driver failed.

        Notes
        -----
        A copy on a GPU is queued on the consumer's stream, or with -1 on the array's stream, if that stream
        is on the GPU; otherwise on the GPU's legacy default stream. The copy's memory is freed on the copy's
        stream, or on the legacy default stream after the copy. If the consumer passed a bare handle
        of a non-blocking stream that nothing keeps alive, the host waits when the consumer releases the
        copy, and the bridge warns: pass the stream object.

        DLPack 1.3, "Python Specification"; Python array API 2025.12, ``array.__dlpack__``.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """``(device_type, device_id)`` in DLPack's numbers: 2 CUDA, 3 pinned host, 13 managed memory."""

def to_cai(
    x: _Array,
    stream: _Stream = None,
    readonly: bool | None = None,
) -> CaiView:
    """A view of an array that speaks DLPack, for consumers that speak the CUDA Array Interface.

    Nothing is copied. The host waits only if nobody says on which stream the array is ready, see
    `from_cai`. The view keeps the producer alive. At its end the producer's stream waits for the
    consumer's, see `CaiView.release`.

    Parameters
    ----------
    x : object
        An object with DLPack's exchange API or ``__dlpack__``, a ``dltensor`` or
        ``dltensor_versioned`` capsule, a ``DLPackView``, or an object that speaks only the CUDA Array
        Interface (version 0 to 3). If an object speaks both protocols, the consumer also waits for
        the stream that the dict names. If its DLPack raises an exception, the bridge reads the dict.
    stream : None, int or stream object, optional
        The **consumer's** stream: 1, 2, a handle, or an object with ``__cuda_stream__``, which the
        view then holds. The stream waits for the producer's. If nothing keeps a bare handle of a
        non-blocking stream alive, the host waits at the end, with a warning once for each line of the
        program. With None the consumer must wait: the dict names the stream that the array is ready on.
        At the end the producer's stream then waits for PyTorch's and CuPy's current streams and for the
        legacy default stream. With -1 no stream waits, not even at the end, and the dict names no stream.
    readonly : bool, optional
        None keeps the producer's flag. True hands out read-only memory. With False you vouch that
        writing is right.

    Returns
    -------
    CaiView

    Raises
    ------
    BufferError
        The CUDA Array Interface cannot express the array, or CUDA cannot reach its memory.
    ValueError
        A malformed capsule, dict or argument, or a stream of another device than the array's.
    TypeError
        An object that speaks neither protocol, or an argument of another type.
    DriverError
        A call of the CUDA driver failed, a graph capture cannot contain the wait, or this process was
        forked from the process that made the array.

    Notes
    -----
    CUDA Array Interface (Version 3), "Synchronization"; DLPack 1.3, "Python Specification".

    Examples
    --------
    >>> from cai_bridge import to_cai
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda() as cuda:
    ...     x, stream = cuda.array([1.0, 2.0], speaks="dlpack"), cuda.stream()
    ...     with to_cai(x, stream=stream) as view:
    ...         view.stream == stream.handle
    True
    """

def from_cai(
    x: SupportsCudaArrayInterface | dict[str, Any],
    stream: _Stream = None,
    readonly: bool | None = None,
    owner: object | None = None,
    device: int | str | tuple[int, int] | None = None,
    dtype: Any = None,
) -> DLPackView:
    """A view of an array that speaks the CUDA Array Interface, for consumers that speak DLPack.

    Nothing is copied. The view keeps the producer alive, and so does every capsule and DLPack tensor
    that it hands out. At the end of each the producer's stream waits for the consumer's, see
    `DLPackView.release`.

    Parameters
    ----------
    x : object or dict
        An object with ``__cuda_array_interface__`` (version 0 to 3), such a dict with ``owner=``, or a
        ``CaiView``.
    stream : None, int or stream object, optional
        The **producer's** stream: 1, 2, a handle, or an object with ``__cuda_stream__``, which the
        view then holds. If the dict names another stream, yours waits for the work that is queued
        there now, and both wait for the consumer at the end. If nothing keeps a bare handle alive,
        the legacy default stream waits for the work that is queued there now, and replaces that
        stream from then on: queue no later work for the array there. -1 says that nothing is pending,
        also on the dict's stream. None takes the dict's stream. If a dict of version 3 names none,
        consumers wait for the legacy default stream, unless the bridge knows that the library means
        something else. If a dict of version 0 to 2 names none, the bridge asks the library for its
        current stream, or calls ``__dlpack__``. Without both the host waits for the device, with a
        `HostSyncWarning`.
    readonly : bool, optional
        None keeps the producer's flag. True hands out read-only memory. With False you vouch that
        writing is right.
    owner : object, optional
        The object that keeps the memory of a dict alive. A number, a text or another constant is
        refused.
    device : int, str or tuple of (int, int), optional
        A GPU as a number or as ``"cuda:0"``, or DLPack's ``(device_type, device_id)``. Pass it to
        hand out managed or pinned memory as plain memory of that GPU, or to name the device of an
        array without elements. By default the pointer of such an array tells the device, then
        ``stream``, then the object's ``__dlpack_device__`` or ``device`` or the dict's stream; else
        it is the current device.
    dtype : str or dtype, optional
        The element type, such as ``"bfloat16"`` for ``<V2``. It must have the typestr's size. By
        default it is ``x.dtype``, if that has the typestr's size, else the typestr's type.

    Returns
    -------
    DLPackView

    Raises
    ------
    BufferError
        DLPack cannot express the array.
    ValueError
        A malformed dict or argument, or a pointer that CUDA does not know.
    TypeError
        An object that does not speak the CUDA Array Interface, or an argument of another type.
    DriverError
        A call of the CUDA driver failed.

    Notes
    -----
    CUDA Array Interface (Version 3), "Synchronization" and "Lifetime management".

    Examples
    --------
    >>> from cai_bridge import from_cai
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda() as cuda:
    ...     x, stream = cuda.array([1.0, 2.0], speaks="cai3"), cuda.stream()
    ...     capsule = from_cai(x).__dlpack__(stream=stream.handle)
    ...     del capsule  # a consumer takes it: torch.from_dlpack(from_cai(x))
    """

def to_dlpack(
    x: _Array,
    stream: _Stream = None,
    readonly: bool | None = None,
) -> DLPackView:
    """A view of an array that speaks either protocol, for consumers that speak DLPack.

    Nothing is copied. The host waits only if nobody says on which stream the array is ready, see
    `from_cai`. The view keeps the producer alive. If `stream` is given, it waits in this call. A
    consumer's stream waits when the consumer asks for a capsule, see ``DLPackView.__dlpack__``.

    Parameters
    ----------
    x : object
        Any object that `to_cai` takes: an object with DLPack's exchange API or ``__dlpack__``, a capsule, a
        view, or an object that speaks the CUDA Array Interface (version 0 to 3).
    stream : None, int or stream object, optional
        The consumer's stream, as in `to_cai`.
    readonly : bool, optional
        As in `to_cai`.

    Returns
    -------
    DLPackView

    Raises
    ------
    BufferError
        DLPack cannot express the array, or CUDA cannot reach its memory.
    ValueError, TypeError, DriverError
        As in `to_cai`.

    Notes
    -----
    DLPack 1.3, "Python Specification".

    Examples
    --------
    >>> from cai_bridge import to_dlpack
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda() as cuda:
    ...     x = cuda.array([1.0, 2.0], speaks="dlpack")
    ...     with to_dlpack(x, stream=cuda.stream(), readonly=True) as view:
    ...         view.shape, view.readonly
    ((2,), True)
    """

@overload
def convert(
    x: _Array,
    to: Literal["cai"],
    *,
    stream: _Stream = None,
    copy: bool | None = None,
    readonly: bool | None = None,
    detach: bool | None = None,
) -> CaiView:
    """Convert an array of any library to an array of another, over the same memory.

    The library's current stream, or `stream`, waits for the producer's. The host waits for a copy to the
    host, as for NumPy, and if nobody says on which stream the array is ready, see `from_cai`. It may wait
    for a copy from the host to a GPU. The new array keeps the producer alive, and at its end the
    producer's stream waits for the consumer's.

    Parameters
    ----------
    x : object
        An array that speaks DLPack or the CUDA Array Interface, a DLPack capsule, or a tree of them.
        A tree is made of lists, tuples, named tuples, dicts, dataclasses, `UserDict`, `UserList`,
        `ChainMap`, `deque`, and containers registered with JAX or PyTorch. Other mappings, sequences
        and sets with arrays are refused. A tree comes back in its shape. Numbers, text and other
        objects in it stay as they are; a list of numbers alone is refused. A container that stands in
        several places is converted once, and stays one container. One event orders all arrays of a
        stream. Either all arrays are converted or none. NumPy, PyTorch, JAX and tvm-ffi share an
        array on the host. Other libraries get a copy of it with ``copy=True``; without that it is
        refused, or in a tree stays as it is.
    to : module, str or type
        The library: ``cupy``, ``"torch"``, or the type of its arrays, such as ``jax.Array``;
        ``"cai"`` and ``"dlpack"`` give a `CaiView` and a `DLPackView`. The bridge knows torch, cupy,
        numba, jax, warp, cuda (cuda.core), tvm_ffi, rmm and numpy; `register` adds others.
    stream : None, int or stream object, optional
        The consumer's stream, as in `to_cai`. None for the library's current one, which for Numba is
        its default stream.
    copy : bool, optional
        True makes a copy in the bridge's own memory. The copy of a GPU's array is on that GPU. The
        copy of a host array is on the GPU of ``stream`` or on the current one, or on the host if the
        library has host arrays. NumPy's arrays are copies in NumPy's memory, and True copies NumPy's
        own arrays as well. False refuses if a copy is needed.
    readonly : bool, optional
        True hands out read-only memory; with False you vouch that writing is right. For NumPy, True
        gives a read-only array, and a read-only view of NumPy's own arrays.
    detach : bool, optional
        Detach tensors that require a gradient, instead of refusing them.

    Returns
    -------
    object
        The array, or the tree. If `x` is already an array of `to`, and no option asks for another, this
        is `x` itself. Then `stream` waits for its pending work, but there is no end: the caller orders
        later work after that of `stream`.

    Raises
    ------
    BufferError
        The other library's protocol cannot express the array, the array is read-only and the library
        may write to it, or CUDA cannot reach its memory.
    ValueError, TypeError, DriverError
        As in `to_cai`. For a tree the message names the array: ``x["mask"][2]``.

    Notes
    -----
    DLPack 1.3, "Python Specification"; CUDA Array Interface (Version 3), "Synchronization".

    Examples
    --------
    >>> import numpy as np
    >>> from cai_bridge import convert
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda() as cuda:
    ...     x = cuda.array([1.0, 2.0])
    ...     convert(x, "numpy"), convert({"a": [x, 3]}, "cai")["a"][1]
    (array([1., 2.], dtype=float32), 3)
    """

@overload
def convert(
    x: _Array,
    to: Literal["dlpack"],
    *,
    stream: _Stream = None,
    copy: bool | None = None,
    readonly: bool | None = None,
    detach: bool | None = None,
) -> DLPackView: ...
@overload
def convert(
    x: _Array,
    to: type[_T],
    *,
    stream: _Stream = None,
    copy: bool | None = None,
    readonly: bool | None = None,
    detach: bool | None = None,
) -> _T: ...
@overload
def convert(
    x: Any,
    to: Any,
    *,
    stream: _Stream = None,
    copy: bool | None = None,
    readonly: bool | None = None,
    detach: bool | None = None,
) -> Any: ...

@final
class _CallArgument:
    def __call__(self, /, *args: Any, **kwargs: Any) -> None: ...

@final
class _Converter:
    def __new__(cls, library: Any) -> Self: ...
    @property
    def library(self) -> Any: ...
    def lend(
        self, xs: list[Any], stream: _Stream = None, readonly: bool | None = None
    ) -> tuple[list[Any], list[Callable[[], None]]]: ...
    def arguments(
        self,
        all: tuple[tuple[Any, ...], dict[str, Any]],  # noqa: A002 - the two kinds of arguments
        names: list[str],
        stream: _Stream,
        readonly: bool | None,
        binds: Callable[[Any], object] | None,
    ) -> tuple[
        tuple[tuple[Any, ...], dict[str, Any]], Any, list[Any], list[Callable[[], None]]
    ]: ...
    def result(self, x: Any, made_on: _Stream) -> Any: ...
    def admit(self, stream: _Stream = None, readonly: bool | None = None) -> None: ...
    def works_on(self, ordinal: int) -> Any: ...

@final
class _CurrentStream:
    def __new__(cls, name: str) -> Self: ...
    def __call__(self, device: int) -> int: ...

@final
class _Ndarrays:
    def __new__(cls, ndarray: Any, halves: Any, pointer: Any, memory: Any) -> Self: ...
    def __call__(self, view: CaiView | DLPackView, stream: Any) -> Any: ...

def _detached(x: Any) -> Any: ...
def _shown(x: Any) -> str: ...
def _xla_handler() -> CapsuleType: ...
def _xla_said() -> int: ...
def _imported(name: str) -> Any: ...
def _unraisable(error: BaseException) -> None: ...
def _ask_for_streams(registered: Sequence[Callable[[int], Any]]) -> None: ...
def _to_numpy(view: CaiView | DLPackView) -> Any: ...
def _habits() -> list[tuple[str, str, str, str]]: ...
def _forget_habits() -> None: ...
def _set_event_level(level: int) -> None: ...
def _end() -> None: ...
def _settle() -> int: ...

@final
class _Recording:
    @property
    def times(self) -> tuple[int, int]: ...
    @property
    def left_out(self) -> int: ...
    @property
    def threads(self) -> list[tuple[int, str]]: ...
    def take(self, most: int) -> list[tuple[str, int, int, dict[str, Any]]]: ...

def _start_trace(limit: int) -> None: ...
def _stop_trace() -> _Recording | None: ...

_SideTuple: TypeAlias = tuple[str, str, int, str | None, int, int, str | None]
_RegionTuple: TypeAlias = tuple[
    int, tuple[int, ...], tuple[int, ...], str, int, bool, tuple[int, int]
]

@final
class _IpcEvent:
    @property
    def name(self) -> bytes: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...

@final
class _IpcStream:
    def __cuda_stream__(self) -> tuple[int, int]: ...
    def record(self, event: _IpcEvent) -> None: ...
    def wait(self, event: _IpcEvent) -> None: ...
    def allocate(self, pool: int, nbytes: int) -> int: ...
    def free(self, ptr: int) -> None: ...
    def copy(self, view: _View, target: int) -> None: ...

@final
class _IpcDevice:
    def __new__(cls, ordinal: int) -> Self: ...
    @property
    def key(self) -> tuple[int, int]: ...
    @property
    def uuid(self) -> bytes: ...
    @staticmethod
    def refuse_capture(view: _View) -> None: ...
    def allocation(self, ptr: int) -> tuple[int, int, bool, int | None]: ...
    def name_memory(self, ptr: int) -> bytes: ...
    def open_memory(self, name: bytes) -> int: ...
    def close_memory(self, ptr: int) -> None: ...
    def create_pool(self) -> int: ...
    def export_pool(self, pool: int) -> int: ...
    def import_pool(self, file: int) -> int: ...
    def name_pointer(self, ptr: int) -> bytes: ...
    def import_pointer(self, pool: int, name: bytes) -> int: ...
    def stream(self) -> _IpcStream: ...
    def event(self) -> _IpcEvent: ...
    def open_event(self, name: bytes) -> _IpcEvent: ...

@final
class _CapturedGraph: ...

@final
class _Session:
    def __new__(cls, devices: int) -> Self: ...
    def enter(self) -> bool: ...
    def leave(self) -> None: ...
    def check_process(self) -> None: ...
    @property
    def is_here(self) -> bool: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def device(self) -> int | None: ...
    def set_device(self, device: int) -> None: ...
    def unset_device(self) -> None: ...
    def reset_device(self, device: int) -> None: ...
    def set_current_stream(self, device: int, handle: int) -> int: ...
    def current_stream(self, device: int) -> int: ...
    def create_stream(
        self, device: int, blocking: bool, name: str | None = None, handle: int | None = None
    ) -> int: ...
    def destroy_stream(self, handle: int) -> None: ...
    def stream_name(self, device: int, handle: int) -> str: ...
    def synchronize_stream(self, device: int, handle: int) -> None: ...
    def synchronize_all(self) -> None: ...
    def run_all(self) -> None: ...
    @property
    def pending(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    def take_raised(self) -> list[BaseException]: ...
    def share_memory(self) -> None: ...
    def run_needed(self) -> None: ...
    @property
    def bytes_in_use(self) -> int: ...
    def record_event(self, device: int, handle: int) -> int: ...
    def wait_event(self, device: int, handle: int, event: int) -> None: ...
    def query_event(self, event: int) -> bool: ...
    def synchronize_event(self, event: int) -> None: ...
    def order(self, first: tuple[int, int], then: tuple[int, int]) -> None: ...
    def launch(
        self,
        device: int,
        handle: int,
        name: str,
        reads: list[tuple[int, int]],
        writes: list[tuple[int, int]],
        run: Callable[[], object] | None = None,
    ) -> None: ...
    def touch(
        self, name: str, reads: list[tuple[int, int]], writes: list[tuple[int, int]]
    ) -> None: ...
    def load(self, ptr: int, length: int) -> bytes: ...
    def store(self, ptr: int, data: bytes) -> None: ...
    def device_of(self, ptr: int) -> int | None: ...
    def reports(self) -> list[tuple[str, str, _SideTuple | None, _SideTuple]]: ...
    def reports_left_out(self) -> int: ...
    def clear_reports(self) -> None: ...
    def fail(self, call: str, nth: int, error: str | int) -> None: ...
    def suppress(self, call: str, nth: int) -> None: ...
    def clear_faults(self) -> int: ...
    def calls(self) -> list[tuple[str, str, int | None, int | None, int | None]]: ...
    def clear_calls(self) -> None: ...
    def begin_capture(self, device: int, handle: int, mode: str) -> None: ...
    def end_capture(self, device: int, handle: int) -> _CapturedGraph: ...
    def launch_graph(self, graph: _CapturedGraph, device: int, handle: int) -> None: ...

@final
class _Tensor:
    def __new__(
        cls,
        session: _Session,
        device: int,
        memory: str,
        pool: int,
        label: str,
        shape: list[int],
        strides: list[int] | None,
        dtype: str,
        offset: int,
        readonly: bool,
    ) -> Self: ...
    def region(self) -> _RegionTuple: ...
    @property
    def typestr(self) -> str: ...
    @property
    def contiguous(self) -> bool: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def exports(self) -> int: ...
    @property
    def pending(self) -> int | None: ...
    def set_pending(self, device: int, handle: int) -> None: ...
    def order_before(self, device: int, handle: int) -> None: ...
    def versioned(self) -> CapsuleType: ...
    def legacy(self) -> CapsuleType: ...

class _ExchangeTensor:
    __dlpack_c_exchange_api__: Final[CapsuleType]
    def __new__(cls, tensor: _Tensor, *_rest: Any) -> Self: ...

@final
class _Import:
    def region(self) -> _RegionTuple: ...

def _simulated_import_capsule(capsule: CapsuleType) -> _Import: ...
def _simulated_import_exchange(x: Any) -> tuple[_Import, int]: ...
def _simulated_borrow_exchange(x: Any) -> tuple[_RegionTuple, int]: ...
def _simulated_region(view: Any) -> _RegionTuple | None: ...
def _plain_types() -> list[type]: ...
def _dtypes() -> list[tuple[str, int, int, str]]: ...
def _simulated_values(data: Any) -> tuple[str, tuple[int, ...], list[Any]] | None: ...
