"""A lab's own arrays that speak DLPack, and log the requests of consumers."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Self

from cai_bridge.testing._kit.dlpack_abi import (
    IS_COPIED,
    READ_ONLY,
    ManagedTensor,
    Taken,
    capsule_name,
)
from cai_bridge.testing._values import CODES, compact_strides

from .array import LabArray
from .base import Lab
from .objects import LEGACY, handle_of

KEYWORDS = ("stream", "max_version", "dl_device", "copy")
CPU = 1
KINDS = {"device": 2, "pinned": 3, "managed": 13}
"""DLPack's device types of kinds of memory."""

SHIFT = 16
"""How many bytes a shifted tensor's first item is behind its data pointer."""


class _Out:
    """The memory of a tensor that was handed out. The last one to be dropped notifies the array."""

    def __init__(self, array: DLPackArray) -> None:
        self.memory, self._array = array.memory, weakref.ref(array)
        array.out += 1

    def __del__(self) -> None:
        array = self._array()
        if array is not None:
            array.out -= 1
            if not array.out and array.at_end is not None:
                array.at_end()


class DLPackArray(LabArray):
    """An array that speaks DLPack only, by ``__dlpack__``.

    Parameters
    ----------
    lab, shape, dtype, layout, value
        As for `LabArray`.
    form : str, optional
        The form of the tensors: ``"legacy"``, or a version such as ``"1.1"`` for a consumer that
        asks for 1.0 or later; by default 1.3. A consumer that asks for no version gets a legacy
        tensor. ``"NULL strides"`` is 1.1 with NULL strides where the version allows them,
        ``"copied"`` has the flag of copies, and ``"shifted"`` a `byte_offset`.
    memory : str
        As for `LabArray`.
    null : iterable of str
        Which of ``data``, ``shape`` and ``strides`` are NULL.
    byte_offset : int
        The number of bytes from the data pointer to the first item; at most 64.
    lanes : int
        The number of items of the last dimension in one element of the tensor.
    readonly : bool
        The read-only flag. A legacy tensor has none, so it is refused then.
    device : tuple of int, optional
        ``(device_type, device_id)``; by default the lab's. With type 1 the memory is the CPU's.
    keywords : iterable of str
        The keywords that ``__dlpack__`` takes.
    error : Exception, optional
        The exception that ``__dlpack__`` raises.
    keep : bool
        Whether capsules are kept.
    **fields : int
        Fields of the tensor to replace, such as ``code``.

    Attributes
    ----------
    asked : list of dict
        The arguments of each call of ``__dlpack__``.
    forms : list of str
        The forms that it handed out: ``"legacy"``, or the version.
    capsules : list
        The capsules, if they are kept.
    out : int
        The number of tensors that consumers still hold.
    at_end : callable
        Called when the last tensor is deleted, on the thread that deletes it.
    """

    at_end: Callable[[], object] | None = None
    out = 0

    def __init__(
        self,
        lab: Lab,
        shape: tuple[int, ...] = (3, 4),
        dtype: str = "float32",
        *,
        layout: str = "C",
        value: float | None = None,
        form: str | None = None,
        memory: str = "device",
        null: Iterable[str] = (),
        byte_offset: int = 0,
        lanes: int = 1,
        readonly: bool = False,
        device: tuple[int, int] | None = None,
        keywords: Iterable[str] = KEYWORDS,
        error: Exception | None = None,
        keep: bool = False,
        **fields: int,
    ) -> None:
        self._device = device or (lab.device if memory == "device" else (KINDS[memory], 0))
        host = self._device[0] == CPU
        super().__init__(lab, shape, dtype, layout, value, host=host, memory=memory)
        region, self._flags = self.region, 0
        if form == "NULL strides":
            form = "1.1"
            if region.strides == compact_strides(shape, region.itemsize):
                null = (*null, "strides")
        elif form == "shifted":
            # Without items there is no pointer, so there is nothing to be offset.
            form, byte_offset = None, SHIFT if region.size else 0
        elif form == "copied":
            form, self._flags = None, IS_COPIED
        elif form == "newest":
            form = None
        self._form, self._null, self._byte_offset = form, tuple(null), byte_offset
        self._lanes, self._readonly, self._keep = lanes, readonly, keep
        self._keywords, self._error, self._fields = set(keywords), error, fields
        self._stream: Any = None
        self._tensors: list[ManagedTensor] = []
        self._out: list[tuple[Any, ManagedTensor]] = []
        self.asked: list[dict[str, Any]] = []
        self.forms: list[str] = []
        self.capsules: list[Any] = []

    @property
    def deleted(self) -> list[int]:
        """How often the deleter of each handed-out tensor was called."""
        self._end_capsules()
        return [tensor.deleted for tensor in self._tensors]

    def pending_on(self, stream: Any) -> None:
        """Declare a stream with pending work, so that exports are ordered after it."""
        self._stream = stream

    def _pending_on(self, stream: Any) -> None:
        self.pending_on(stream)

    def first_item(self) -> Self:
        """Make another array of the first item, in the same memory."""
        made = super().first_item()
        made._tensors, made._out, made.asked, made.forms, made.capsules = [], [], [], [], []
        made.out = 0
        return made

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **wishes: Any) -> Any:
        unknown = sorted(wishes.keys() - self._keywords)
        if unknown:
            raise TypeError(f"__dlpack__() got an unexpected keyword argument {unknown[0]!r}")
        self.asked.append(wishes)
        if self._error is not None:
            # Raise a new exception: a traceback keeps frames, and the caller's frame keeps a
            # capsule. Python 3.12 was seen not to collect this cycle with the array.
            raise type(self._error)(*self._error.args)
        if wishes.get("dl_device") not in (None, self._device):
            raise BufferError(f"dl_device: got {wishes['dl_device']}; allowed: {self._device}")
        if wishes.get("copy"):
            raise BufferError("copy: got True; allowed: None or False")
        tensor = self.tensor(self._form_for(wishes.get("max_version")))
        self._order_before(wishes.get("stream"))
        self._tensors.append(tensor)
        capsule = tensor.capsule(destructor=False)
        self._out.append((capsule, tensor))
        if self._keep:
            self.capsules.append(capsule)
        return capsule

    def _end_capsules(self) -> None:
        """Delete the tensors of capsules that nobody consumed and nobody holds any more.

        A capsule's destructor would do it, but a destructor in Python loses the exception that is
        pending while a consumer refuses.
        """
        own = 4 if self._keep else 3  # the pair, the name here, and the call's argument
        left = []
        for capsule, tensor in self._out:
            unused = not f"{capsule_name(capsule)}".startswith("used_")
            if sys.getrefcount(capsule) > own:
                left.append((capsule, tensor))
            elif unused:
                Taken(tensor.struct).delete()
        self._out = left

    def __del__(self) -> None:
        # If somebody still holds a capsule, its tensor stays.
        if "_out" in self.__dict__:
            self._out = [one for one in self._out if not one[1].deleted]
            self._end_capsules()

    def _form_for(self, newest: tuple[int, int] | None) -> str:
        if newest is None or newest[0] < 1:
            return "legacy"
        return self._form or "1.3"

    def tensor(self, form: str) -> ManagedTensor:
        """Make a tensor of a form for the caller to hand out."""
        if self._readonly and form == "legacy":
            raise BufferError("max_version: got None; allowed: 1.0 or later for read-only memory")
        self.forms.append(form)
        region, itemsize = self.region, self.region.itemsize * self._lanes
        shape, strides = region.shape, [step // itemsize for step in region.strides]
        if self._lanes > 1:
            shape, strides = shape[:-1], strides[:-1]
        code, bits = CODES[self.dtype.name]
        return ManagedTensor(
            region.ptr - self._byte_offset,
            form=form,
            null=self._null if region.size else (*self._null, "data"),
            shape=shape,
            strides=strides,
            dtype=(code, bits, self._lanes),
            device=self._device,
            byte_offset=self._byte_offset,
            flags=0 if form == "legacy" else READ_ONLY * self._readonly | self._flags,
            owner=_Out(self),
            **self._fields,
        )

    def _order_before(self, stream: int | None) -> None:
        """Make the requested stream wait for the pending work.

        Lenient: 0, which names no stream, counts as the legacy default stream.
        """
        if self._stream is not None and stream != -1:
            self.lab.order(handle_of(self._stream), stream or LEGACY)
