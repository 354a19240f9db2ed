"""The simulated device as a context manager."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

from cai_bridge import _core, _events

from . import _checks, _work
from ._array import SimulatedArray, class_for
from ._errors import RaceError, SimulatedError
from ._findings import Findings
from ._queues import Queues
from ._stream import SimulatedStream, a_stream, current
from ._values import dtype_named, strides_named, values_and_shape

# How many reports are attached to an exception as notes.
NOTED = 10


class SimulatedCuda(Queues, Findings):
    """A CUDA driver that needs no GPU; `simulated_cuda` makes it.

    Inside its ``with`` block it is this process's driver for `cai_bridge`. Host memory stands in
    for device memory. Queued work runs late, in the least helpful order that CUDA allows. Each pair
    of accesses that nothing orders, by happens-before, is a `Report`.

    It remembers every array and stream that it ever had, less than a kilobyte each, so that a
    report can name one that is used too late. Conversions do not make it grow.
    """

    _here: ClassVar[SimulatedCuda | None] = None

    @staticmethod
    def current() -> SimulatedCuda | None:
        """Return the simulated device in use, for code that cannot be passed it."""
        return SimulatedCuda._here

    def __init__(self, devices: int, *, check: bool, shared: bool) -> None:
        self._devices = _checks.integer("devices", devices, 1, "1 or more")
        self._check = _checks.flag("check", check)
        self._shared = _checks.flag("shared", shared)
        self._session = _core._Session(self._devices)
        self._entered, self._arrays = False, 0
        self._stream_names: dict[int, str] = {}
        self.legacy = SimulatedStream._named(self._session, None, 1)
        self.per_thread = SimulatedStream._named(self._session, None, 2)

    def __enter__(self) -> Self:
        if self._entered:
            raise SimulatedError("a simulated device can be entered once; make another one")
        if not self._session.enter():
            raise SimulatedError("a simulated device is already in place, for the whole process")
        self._entered = True
        if self._shared:
            self._session.share_memory()
        SimulatedCuda._here = self
        _events.stream_names = self._stream_names
        if self._shared:
            threading.Thread(target=self._serve, name="simulated device", daemon=True).start()
        return self

    def _serve(self) -> None:
        """Run the queued work that other processes wait for, as a GPU does by itself."""
        while SimulatedCuda._here is self:
            self._session.run_needed()
            time.sleep(0.0005)

    def __exit__(self, kind: object, value: BaseException | None, *traceback: object) -> None:
        try:
            if kind is None:
                self.synchronize()
            elif value is not None:
                self._note_reports(value)
        except BaseException as error:
            self._note_reports(error)
            raise
        finally:
            SimulatedCuda._here = None
            _events.stream_names = {}
            self._session.leave()
        if kind is None and self._check:
            self.check()

    def _note_reports(self, error: BaseException) -> None:
        """Attach the reports so far to an exception that leaves the block: the possible cause."""
        if not self._check or isinstance(error, RaceError):
            return
        try:
            reports = self.reports
        except _core.DriverError:
            return  # a fork must leave its parent's device alone
        for report in reports[:NOTED]:
            error.add_note(str(report))
        if more := len(reports) + self.reports_left_out - len(reports[:NOTED]):
            error.add_note(f"and {more} more reports of the simulated device")

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self._devices

    @property
    def current_device(self) -> int | None:
        """The ordinal of the calling thread's current device."""
        return self._session.device

    def set_device(self, device: int) -> None:
        """Make a device the calling thread's current one, like ``cudaSetDevice``."""
        _work.check_open(self._session)
        self._session.set_device(self._device(device))

    def reset_device(self, device: int = 0) -> None:
        """Destroy a device's primary context, like ``cuDevicePrimaryCtxReset``.

        Queued work runs first. The context's streams, events and memory are destroyed, so do not
        use its arrays any more. At its next use the context has the same address.
        """
        _work.check_open(self._session)
        try:
            self._session.reset_device(self._device(device))
        finally:
            _work.raise_kept(self._session)

    def stream(
        self,
        name: str | None = None,
        *,
        device: int | None = None,
        blocking: bool = False,
        handle_of: SimulatedStream | None = None,
    ) -> SimulatedStream:
        """Make a stream.

        Parameters
        ----------
        name : str, optional
            The stream's name in reports.
        device : int, optional
            The stream's device; by default the current one.
        blocking : bool, optional
            Whether CUDA orders the stream with the legacy default stream.
        handle_of : SimulatedStream, optional
            A destroyed stream whose handle the new one gets. CUDA reuses a handle at once, even
            while work of the first stream is pending. Otherwise handles are never reused here.
        """
        _work.check_open(self._session)
        device = self._device(device)
        name = None if name is None else _checks.text("name", name)
        handle = None
        if handle_of is not None:
            handle = a_stream(handle_of).handle
            if not handle_of._destroyed:
                _checks.refuse(ValueError, "handle_of", handle_of, "a destroyed stream")
        blocking = _checks.flag("blocking", blocking)
        handle = self._session.create_stream(device, blocking, name, handle)
        if name is not None:
            self._stream_names[handle] = name
        name = name or self._session.stream_name(device, handle)
        return SimulatedStream(self._session, device, handle, name)

    def default_stream(self, device: int, *, per_thread: bool = False) -> SimulatedStream:
        """Return a default stream of a device, which need not be the current one."""
        handle = 1 + _checks.flag("per_thread", per_thread)
        return SimulatedStream._named(self._session, self._device(device), handle)

    def stream_of(self, handle: int, *, device: int | None = None) -> SimulatedStream:
        """Return another owner's stream by its handle; this does not keep it alive.

        Parameters
        ----------
        handle : int
            1 and 2 are the default streams.
        device : int, optional
            The stream's device; by default the current one.
        """
        handle = _checks.integer("handle", handle, 1, "1, 2, or the handle of a stream")
        return SimulatedStream._named(self._session, self._device(device), handle)

    @contextlib.contextmanager
    def current_stream(self, stream: SimulatedStream) -> Iterator[SimulatedStream]:
        """Make a stream the current one of the arrays' library, in the calling thread.

        The exchange API reports it as ``current_work_stream`` and orders nothing, as in PyTorch:
        work on another stream must have been ordered before it. The default is the legacy default
        stream.
        """
        with current(a_stream(stream)):
            yield stream

    def array(
        self,
        data: object = None,
        *,
        dtype: str | None = None,
        shape: int | Sequence[int] | None = None,
        fill: object = None,
        speaks: str | Iterable[str] = "dlpack",
        stream: SimulatedStream | None = None,
        name: str | None = None,
        readonly: bool = False,
        device: int | None = None,
        memory: str = "device",
        strides: str | Sequence[int] = "C",
        offset: int = 0,
    ) -> SimulatedArray:
        """Make an array in its own memory.

        Parameters
        ----------
        data : NumPy array, nested sequences or a value, optional
            The values. Without `data` and `fill` the memory is not initialized.
        dtype : str, optional
            The name of the element type: ``"float32"``, ``"bfloat16"``, ...; by default that of a
            NumPy array, else ``"float32"``. Values are Python's bool, int, float and complex; 8-bit
            floats are given as their bits.
        shape : int or sequence of int, optional
            The extents. Flat `data` is spread over them.
        fill : optional
            One value for all items, in place of `data`.
        speaks : str or iterable of str, optional
            The protocols that the array's type has, one DLPack and one CAI at most: ``"exchange"``
            (the C exchange API), ``"dlpack"`` (the array API's), ``"dlpack-legacy"`` (no
            ``max_version``), ``"dlpack-strict"`` (legacy capsules, refuses -1), ``"dlpack-bare"``
            (no arguments), ``"cai0"`` to ``"cai3"``; ``"cai"`` is ``"cai3"``. An empty tuple is
            none.
        stream : SimulatedStream, optional
            The stream on which queued work writes the values, and on which the array is then
            pending. Without it the host writes them at once, and nothing is pending.
        name : str, optional
            The array's name in reports.
        readonly : bool, optional
            Whether the array is read-only: exports have the flag, and nothing may write to the
            array after it is made.
        device : int, optional
            The array's device; by default the stream's, else the current one.
        memory : str, optional
            ``"device"``, ``"pinned"``, ``"managed"``, or ``"pool"``: device memory that is freed in
            the order of `stream` and handed out again at once, as caching allocators do.
        strides : str or sequence of int, optional
            ``"C"``, ``"F"``, or bytes, one for each dimension.
        offset : int, optional
            The number of bytes from DLPack's data pointer to the first item.

        Raises
        ------
        TypeError, ValueError, BufferError
            An argument is not valid; the message names it.
        """
        _work.check_open(self._session)
        own, data, extents = values_and_shape(data, shape, fill)
        dtype = own or "float32" if dtype is None else dtype
        if stream is not None and device is None:
            device = a_stream(stream).device
        device = self._device(device)
        self._arrays += 1
        name = f"array#{self._arrays}" if name is None else _checks.text("name", name)
        element = dtype_named(dtype)
        tensor = _core._Tensor(
            self._session,
            device,
            _checks.choice("memory", memory, ("device", "pinned", "managed", "pool")),
            1 if stream is None else stream.handle,
            name,
            list(extents),
            strides_named(strides, extents, element.itemsize),
            dtype,
            _checks.integer("offset", offset, 0, "0 bytes or more"),
            _checks.flag("readonly", readonly),
        )
        array: SimulatedArray = class_for(speaks)(tensor, self._session, name)
        if stream is not None:
            array._set_pending(stream)
        if data is not None and stream is not None:
            _work.fill(stream, array, data, name=f"{name}: values", checked=False)
        elif data is not None:
            _work.host_write(self._session, array, data, f"{name}: values")
        return array

    def alloc(
        self, nbytes: int, *, name: str | None = None, device: int | None = None
    ) -> SimulatedArray:
        """Allocate bytes, as an array that speaks no protocol."""
        return self.array(shape=nbytes, dtype="uint8", speaks=(), name=name, device=device)

    def read(self, array: object) -> Any:
        """Read an array or any view from the host, as `SimulatedArray.tolist`."""
        return _work.host_read(self._session, array, "read")

    def _device(self, device: int | None) -> int:
        return self.legacy.device if device is None else _checks.device(device, self._devices)

    def __repr__(self) -> str:
        place = "in place" if self._session.is_open else "not in place"
        return f"<SimulatedCuda devices={self.devices}, {place}>"


def simulated_cuda(devices: int = 1, *, check: bool = True, shared: bool = False) -> SimulatedCuda:
    """Replace the CUDA driver by a simulated one inside a ``with`` block.

    At the end of the block all queued work runs, and the real driver returns. If an exception ends
    the block, queued work is dropped, and the exception gets the reports so far as notes.

    Parameters
    ----------
    devices : int, optional
        The number of devices.
    check : bool, optional
        Whether the end of the block raises `RaceError` if the device has reports.
    shared : bool, optional
        Whether other processes with a simulated device can open its memory, as `cai_bridge.share`
        needs. A thread then runs queued work that such a process waits for. Only on Linux.

    Returns
    -------
    SimulatedCuda
        The context manager; ``as`` gives the same object.

    Raises
    ------
    RaceError
        At the end of the block: the device has reports, and `check` is true.
    SimulatedError
        On entry: a simulated device is already in place.

    Examples
    --------
    >>> from cai_bridge import to_cai
    >>> from cai_bridge.testing import simulated_cuda
    >>> with simulated_cuda() as cuda:
    ...     producer, mine = cuda.stream("producer"), cuda.stream("mine")
    ...     x = cuda.array([1.0, 2.0], stream=producer)
    ...     seen = cuda.consumer("cai-waits", mine).read(to_cai(x))
    ...     cuda.synchronize()
    ...     seen.value
    [1.0, 2.0]
    """
    return SimulatedCuda(devices, check=check, shared=shared)
