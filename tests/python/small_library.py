"""A small GPU array library that is right, as its author would write it.

`tests/data/planted.toml` plants faults here and `tests/data/unusual.toml` makes it unusual: each
row replaces a few words of this text.
It tracks its work by events, one for each stream and memory; to order its own streams is its
users' part, as in most libraries.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import weakref
from threading import get_ident

import tables

from cai_bridge.conformance import ProducerAdapter
from cai_bridge.testing import SimulatedCuda
from cai_bridge.testing._kit.dlpack_abi import (
    DLManagedTensorVersioned,
    DLTensor,
    ManagedTensor,
    Taken,
)
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import DTYPES, flat

CODES = {"bool": 6, "int": 0, "uint": 1, "float": 2, "complex": 5, "bfloat": 4}
NAMES = (
    "float32 float64 float16 bfloat16 complex64 complex128 bool int8 int16 int32 int64 uint8 uint32"
)


def cuda():
    return SimulatedCuda.current()


_current = []


def current():
    """The stream that the library works on."""
    return _current[-1] if _current else cuda().legacy


@contextlib.contextmanager
def use(stream):
    _current.append(stream)
    try:
        yield stream
    finally:
        _current.pop()


class Memory:
    """Bytes, and the work that is queued on them: an event for each stream."""

    def __init__(self, nbytes):
        self.device = cuda().legacy.device
        self.block = cuda().alloc(nbytes) if nbytes else None
        self.ptr = self.block.ptr if nbytes else 0
        self.work = {}
        self.last = None
        self.thread = get_ident()

    def settle(self):
        """In another thread, 2 is another stream: one of ours stands for that of before."""
        if self.thread != get_ident() and 2 in self.work:
            _, event = self.work.pop(2)
            own = cuda().stream()
            own.wait(event)
            self.work[own.handle] = own, own.record()
            self.last = own if self.last.handle == 2 else self.last
        self.thread = get_ident()

    def queued(self, stream):
        self.settle()
        self.last = stream
        self.work[stream.handle] = stream, stream.record()

    def order_before(self, stream):
        self.settle()
        for handle, (_, event) in self.work.items():
            if handle != stream.handle:
                stream.wait(event)

    def ready_stream(self):
        """A stream that everything pending is ordered before; kept as long as the memory."""
        self.settle()
        if self.last is None:
            return None
        self.order_before(self.last)
        return self.last.handle


def compact(shape, itemsize):
    steps, step = [], itemsize
    for extent in reversed(shape):
        steps.append(step)
        step *= extent
    return tuple(reversed(steps))


class Array:
    def __init__(self, memory, ptr, shape, strides, dtype, readonly=False, negated=False):
        self.memory, self.ptr, self.shape, self.strides = memory, ptr, shape, strides
        self.name, self.readonly, self.negated = dtype, readonly, negated

    @classmethod
    def empty(cls, shape, dtype):
        strides = compact(shape, DTYPES[dtype].itemsize)
        memory = Memory(math.prod(shape) * DTYPES[dtype].itemsize)
        return cls(memory, memory.ptr, shape, strides, dtype)

    @property
    def dtype(self):
        return self.name

    @property
    def itemsize(self):
        return DTYPES[self.name].itemsize

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def region(self):
        return Region(self.ptr, self.shape, self.strides, self.name, self.itemsize)

    @property
    def contiguous(self):
        wanted = compact(self.shape, self.itemsize)
        steps = zip(self.shape, self.strides, wanted, strict=True)
        return not self.size or all(n == 1 or step == want for n, step, want in steps)

    # Views.

    def view(self, ptr, shape, strides):
        return type(self)(
            self.memory, ptr, tuple(shape), tuple(strides), self.name, self.readonly, self.negated
        )

    def __getitem__(self, index):
        ptr, shape, strides = self.ptr, [], []
        index = index if isinstance(index, tuple) else (index,)
        rest = zip(self.shape[len(index) :], self.strides[len(index) :], strict=True)
        for one, extent, stride in zip(index, self.shape, self.strides, strict=False):
            if isinstance(one, int):
                ptr += one * stride
                continue
            start, stop, step = one.indices(extent)
            ptr += start * stride
            shape.append(len(range(start, stop, step)))
            strides.append(stride * step)
        for extent, stride in rest:
            shape.append(extent)
            strides.append(stride)
        return self.view(ptr, shape, strides)

    def transpose(self, *axes):
        return self.view(
            self.ptr, [self.shape[at] for at in axes], [self.strides[at] for at in axes]
        )

    def broadcast_to(self, shape):
        new = len(shape) - len(self.shape)
        strides = [0] * new + [
            0 if n == 1 != m else step
            for n, step, m in zip(self.shape, self.strides, shape[new:], strict=True)
        ]
        return self.view(self.ptr, shape, strides)

    def frozen(self):
        view = self.view(self.ptr, self.shape, self.strides)
        view.readonly = True
        return view

    def negative(self):
        """Recorded only: consumers of the memory would see the other sign."""
        view = self.view(self.ptr, self.shape, self.strides)
        view.negated = not self.negated
        return view

    # Work.

    def fill(self, value):
        if self.readonly:
            raise ValueError("the array is read-only")
        current().fill(self.region, value)
        self.memory.queued(current())

    def copy(self):
        made = type(self).empty(self.shape, self.name)
        if self.size:
            current().copy(made.region, self.region)
            self.memory.queued(current())
            made.memory.queued(current())
        return made

    def tolist(self):
        if self.name == "bfloat16":
            raise NotImplementedError("tolist() of bfloat16")
        cuda().synchronize()
        return cuda().read(self.region)

    # The CUDA Array Interface.

    def check_lazy(self):
        if self.negated:
            raise BufferError("the array is a negative that is not computed yet")

    @property
    def __cuda_array_interface__(self):
        self.check_lazy()
        typestr = DTYPES[self.name].typestr
        return {
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.ptr if self.size else 0, self.readonly),
            "strides": None if self.contiguous else self.strides,
            "descr": [("", typestr)],
            "version": 3,
            "stream": self.memory.ready_stream(),
        }

    # DLPack.

    def __dlpack_device__(self):
        return (2, self.memory.device)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.check_lazy()
        if stream == 0:
            raise ValueError("stream: got 0")
        versioned = max_version is not None and max_version[0] >= 1
        if self.readonly and not versioned:
            raise BufferError("read-only memory needs a versioned capsule")
        if dl_device == (1, 0):
            if copy is False:
                raise BufferError("copy: got False, and the host cannot read the memory")
            return self.on_the_host(versioned)
        if dl_device not in (None, (2, self.memory.device)):
            raise BufferError(f"dl_device: got {dl_device}")
        shown, flags = self, int(self.readonly)
        if copy:
            consumer = cuda().stream_of(stream or 1) if stream != -1 else cuda().legacy
            last = self.memory.last or cuda().legacy
            self.memory.order_before(consumer)
            with use(consumer):
                shown, flags = self.copy(), 2
            self.memory.last = last  # the consumer's stream may go
            if not versioned:
                flags = 0
        tensor = shown.managed(versioned, flags)
        if stream != -1:
            shown.memory.order_before(cuda().stream_of(1 if stream is None else stream))
        return tensor.capsule()

    def on_the_host(self, versioned):
        kind = {"float32": ctypes.c_float}.get(self.name)
        if kind is None:
            raise BufferError(f"dl_device: got the CPU for {self.name}")
        self.memory.order_before(current())
        values = list(flat(self.copy().tolist()))
        buffer = (kind * len(values))(*values)
        strides = [step // 4 for step in compact(self.shape, 4)]
        made = ManagedTensor(
            ctypes.addressof(buffer),
            form="versioned" if versioned else "legacy",
            shape=self.shape,
            strides=strides,
            device=(1, 0),
            flags=2 if versioned else 0,
            owner=buffer,
        )
        return made.capsule()

    def managed(self, versioned=True, flags=0):
        kind = self.name.rstrip("0123456789")
        return ManagedTensor(
            self.ptr if self.size else 0,
            form="versioned" if versioned else "legacy",
            shape=self.shape,
            strides=[step // self.itemsize for step in self.strides],
            dtype=(CODES[kind], 8 * self.itemsize, 1),
            device=(2, self.memory.device),
            flags=flags,
            owner=self,
        )

    # The exchange API, whose functions are below.

    @classmethod
    def imported(cls, taken):
        """Make an array of a tensor that was given away; None for what it has no type of."""
        code, bits, lanes = taken.fields.dtype
        names = [name for name in DTYPES if code_of(name) == (code, bits) and lanes == 1]
        if taken.fields.device[0] != 2 or not names:
            return None
        size, shape = bits // 8, taken.fields.shape or ()
        strides = tuple(step * size for step in taken.fields.strides or ())
        made = cls(Foreign(taken), taken.fields.ptr, shape, strides, names[0])
        made.readonly = bool(taken.fields.readonly)
        return made

    def exchanged(self):
        self.check_lazy()
        self.memory.order_before(current())
        return self.managed(flags=int(self.readonly))

    def lent(self):
        self.check_lazy()
        return self.managed(flags=int(self.readonly))


_lent = {}
new_reference = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


def code_of(name):
    return CODES.get(name.rstrip("0123456789")), 8 * DTYPES[name].itemsize


class Foreign(Memory):
    """Somebody else's memory, which goes with its tensor."""

    def __init__(self, taken):
        super().__init__(0)
        self.taken, self.ptr = taken, taken.fields.ptr
        self.device = taken.fields.device[1]


def table_for(kind):
    borrowing = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(DLTensor))

    @borrowing
    def borrow(x, out):
        array = ctypes.cast(x, ctypes.py_object).value
        try:
            tensor = array.lent()
        except Exception:  # which ctypes cannot pass on
            return -1
        _lent[id(array)] = tensor
        tensor._owner = None  # what is lent keeps nothing
        weakref.finalize(array, _lent.pop, id(array), None)
        ctypes.memmove(out, ctypes.addressof(tensor.struct.dl_tensor), ctypes.sizeof(DLTensor))
        return 0

    @tables._STREAM
    def stream(device_type, ordinal, out):
        out[0] = current().handle
        return 0

    @tables._FROM_OBJECT
    def from_object(x, out):
        try:
            out[0] = ctypes.cast(x, ctypes.py_object).value.exchanged().hand_out()
        except Exception:  # which ctypes cannot pass on
            return -1
        return 0

    @tables._ALLOCATE
    def allocate(prototype, out, context, set_error):
        like = prototype[0]
        names = [name for name in DTYPES if code_of(name) == (like.code, like.bits)]
        if like.device_id != cuda().legacy.device:
            names = []
        if like.device_type != 2 or not names:
            set_error(context, b"BufferError", b"no such memory")
            return -1
        made = kind.empty(tuple(like.shape[: like.ndim]), names[0])
        out[0] = made.managed().hand_out()
        return 0

    @tables._TO_OBJECT
    def to_object(address, out):
        made = speakers[kind].imported(Taken(DLManagedTensorVersioned.from_address(address)))
        if made is None:
            return -1
        new_reference(made)
        out[0] = id(made)
        return 0

    entries = dict(
        zip(
            ("allocate", "to_object", "from_object", "borrow", "stream"),
            (allocate, to_object, from_object, borrow, stream),
            strict=True,
        )
    )
    tables._forever.append(entries)
    addresses = {name: ctypes.cast(one, ctypes.c_void_p).value for name, one in entries.items()}
    return tables.table(version=(1, 3), **addresses)


speakers = {}


def with_table(kind):
    speakers[kind] = tables.speaker(table_for(kind), kind)
    return speakers[kind]


Exchanged = with_table(Array)


class Producer(ProducerAdapter):
    name = "small"
    dtypes = tuple(NAMES.split())
    array = Exchanged

    def make(self, shape, dtype):
        return self.array.empty(shape, dtype)

    def readonly(self, array):
        return array.frozen()

    def stream(self):
        return cuda().stream()

    def on(self, stream):
        return use(stream)

    def on_device(self, ordinal):
        # What the lab has made the driver's current device is the library's.
        return contextlib.nullcontext(ordinal)

    def lazy(self):
        x = self.make((2,), "float32")
        cuda().synchronize()
        cuda()._session.store(x.ptr, b"\0\0\x80?\0\0\0@")
        yield "negative", x.negative(), [-1.0, -2.0]
