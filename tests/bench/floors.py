"""What a conversion has to do whoever writes it: calls of the driver, and of the libraries.

Functions of C are timed through ctypes, less a call of one that does nothing. ctypes lets the
interpreter's lock go for one kind of library object and keeps it for the other: the difference is
what that takes.
"""

import ctypes
import statistics

from timing import Row, timed

GROUP = "floors"
LEGACY = 1
ATTRIBUTES = (1, 2, 8, 9)
"""Context, kind of memory, managed, device: what the bridge asks of a pointer."""

A_DICT = (
    '{"shape": (four, four), "typestr": text, "data": (address, False), "version": 3,'
    ' "strides": None, "stream": 1}'
)
A_CUPY_ARRAY = "cupy.ndarray((four, four), kind, Pointer(Memory(address, 64, host, 0), 0))"
# What asking a library, and answering, takes. A view is Python's own; NumPy makes a capsule, and
# answers for an attribute, in C. CuPy's array is made by its types, which is the public way.
OF_LIBRARIES = {
    "SMV(t)": [(1, "SMV.from_dlpack(t, stream_ptr=-1)")],
    "guards": [(1, "t.requires_grad"), (1, "t.is_neg()"), (-1, "pass"), (-1, "pass")],
    "its handle": [(1, "side_object.cuda_stream")],
    "cupy's attributes": [(1, "c.shape, c.strides, c.dtype, c.data.ptr")],
    "numba's dict": [(1, "n.__cuda_array_interface__")],
    "a dict": [(1, A_DICT)],
    "a capsule": [(1, "host.__dlpack__(stream=None)")],
    "a view": [(1, "memoryview(host)")],
    "a getter": [(1, "host.ndim")],
    "a CuPy array": [(1, A_CUPY_ARRAY)],
}

# The same of the thousand tensors of a list, less the loop; they have no rows of their own.
A_TENSOR = "SMV.from_dlpack(one, stream_ptr=-1) is None or one.requires_grad or one.is_neg()"
OF_THOUSANDS = {
    "a thousand SMV(t), guards": [
        (1, f"any({A_TENSOR} for one in tensors)"),
        (-1, "any(one is None for one in tensors)"),
    ],
    "a thousand CuPy arrays": [
        (1, f"[{A_CUPY_ARRAY} for _ in tensors]"),
        (-1, "[host for _ in tensors]"),
    ],
}


def parts(found):
    """Give the parts that pairs.toml adds up, and add to `found` what their statements speak of."""
    import numpy as np

    found |= {"four": 4, "address": 1 << 46, "text": "<f4", "host": np.zeros((16, 16), np.float32)}
    if "c" in found:
        from cupy.cuda import MemoryPointer, UnownedMemory

        found |= {"Pointer": MemoryPointer, "Memory": UnownedMemory, "kind": found["c"].dtype}
    libraries = {**OF_LIBRARIES, **OF_THOUSANDS}
    return {**libraries, **of_driver(found), **of_streams(found), **of_tensors(found)}


def of_driver(found):
    """The driver's calls of an order each way, of a look at a pointer, and the lock's release."""
    from gpu import driver as cuda_driver

    if "t" not in found:
        return {}
    loaded = cuda_driver.load()
    loaded.use_primary()
    slots = [ctypes.c_uint64() for _ in ATTRIBUTES]
    found |= {
        "letting": ctypes.CDLL("libcuda.so.1"),
        "keeping": ctypes.PyDLL("libcuda.so.1"),
        "event": ctypes.c_void_p(loaded.event()),
        "legacy": ctypes.c_void_p(LEGACY),
        "other": ctypes.c_void_p(found["side"]),
        "context": ctypes.c_void_p(loaded.primary),
        "answer": ctypes.byref(ctypes.c_uint64()),
        "version": ctypes.byref(ctypes.c_int()),
        "none": ctypes.c_uint(0),
        "slots": slots,
        "kinds": (ctypes.c_int * len(slots))(*ATTRIBUTES),
        "answers": (ctypes.c_void_p * len(slots))(*map(ctypes.addressof, slots)),
        "count": ctypes.c_uint(len(slots)),
        "pointer": ctypes.c_uint64(found["t"].data_ptr()),
    }

    def call(function, arguments):
        # Less a call of the same arguments that takes no notice of them.
        nothing = f"keeping.cuDriverGetVersion(version,{arguments.partition(',')[2]})"
        return [(1, f"keeping.{function}({arguments})"), (-1, nothing)]

    lock = [(1, "letting.cuDriverGetVersion(version)"), (-1, "keeping.cuDriverGetVersion(version)")]
    capturing = call("cuStreamIsCapturing", "other, answer")
    context = call("cuCtxGetCurrent", "answer") + call("cuCtxGetId", "context, answer")
    around = 2 * capturing + context + lock
    there = call("cuEventRecord", "event, legacy") + call("cuStreamWaitEvent", "other, event, none")
    back = call("cuEventRecord", "event, other") + call("cuStreamWaitEvent", "legacy, event, none")
    return {
        "pointer": call("cuPointerGetAttributes", "count, kinds, answers, pointer"),
        "lock": lock,
        "capturing": capturing,
        "context": context,
        "whose": call("cuStreamGetCtx", "other, answer"),
        "order there": there + around,
        "order back": back + around,
    }


def of_streams(found):
    """Where torch and CuPy work now: who reads a dict is taken to work there."""
    if not {"t", "c"} <= found.keys():
        return {}
    from cupy_backends.cuda import stream

    from cai_bridge.testing._kit.dlpack_abi import exchange_table
    from cai_bridge.testing._kit.dlpack_capsule import capsule_name, capsule_pointer

    table = exchange_table(type(found["t"]))
    capsule = stream.__pyx_capi__["get_stream_ptr"]
    torchs = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    cupys = ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)
    does_nothing = ctypes.cast(ctypes.PyDLL(None).abs, ctypes.c_void_p).value
    found |= {
        "torchs": torchs(table.struct.current_work_stream),
        "no_torchs": torchs(does_nothing),
        "cupys": cupys(capsule_pointer(capsule, capsule_name(capsule))),
        "no_cupys": cupys(does_nothing),
    }
    asked = [(1, "torchs(2, 0, answer)"), (-1, "no_torchs(2, 0, answer)")]
    return {"current streams": [*asked, (1, "cupys(0)"), (-1, "no_cupys(0)")]}


def of_tensors(found):
    """torch makes a tensor of a managed one, and lets go of it, by its table.

    The managed one is torch's own: to make and to delete that is a part of its own.
    """
    if "t" not in found:
        return {}
    from cai_bridge.testing._kit.dlpack_abi import DLManagedTensorVersioned, exchange_table

    table = exchange_table(type(found["t"])).struct
    managed, made = ctypes.c_void_p(), ctypes.c_void_p()
    taking = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    making = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    ending = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
    does_nothing = ctypes.cast(ctypes.PyDLL(None).abs, ctypes.c_void_p).value
    found |= {
        "managed": managed,
        "made": made,
        "managed_at": ctypes.byref(managed),
        "made_at": ctypes.byref(made),
        "taking": taking(table.managed_tensor_from_py_object_no_sync),
        "making": making(table.managed_tensor_to_py_object_no_sync),
        "no_taking": taking(does_nothing),
        "no_making": making(does_nothing),
        "no_deleting": ending(does_nothing),
        "letting_go": ending(ctypes.cast(ctypes.pythonapi.Py_DecRef, ctypes.c_void_p).value),
    }
    found["taking"](found["t"], found["managed_at"])
    deleter = DLManagedTensorVersioned.from_address(managed.value).deleter
    found["deleting"] = ending(deleter)
    found["deleting"](managed)
    whole = "taking(t, managed_at); making(managed, made_at); letting_go(made)"
    without = "taking(t, managed_at); no_making(managed, made_at); deleting(managed)"
    return {
        "a managed tensor": [
            (1, "taking(t, managed_at); deleting(managed)"),
            (-1, "no_taking(t, managed_at); no_deleting(managed)"),
        ],
        "a torch tensor": [(1, whole), (-1, without)],
    }


def floor_rows(found, known, between):
    """The parts by themselves."""
    for name, terms in known.items():
        if name in OF_THOUSANDS:
            continue
        texts = list(dict.fromkeys(text for _, text in terms))
        try:
            times = dict(zip(texts, timed(texts, found, between=between), strict=True))
        except Exception as error:
            yield Row(GROUP, name, None, remark=f"{type(error).__name__}: {error}")
            continue
        sums = [sum(sign * one for sign, one in round_) for round_ in rounds(terms, times)]
        yield Row(GROUP, name, min(sums), median=statistics.median(sums))


def rounds(terms, times):
    """Each round's times of `terms`, with their signs."""
    for one in zip(*(times[text] for _, text in terms), strict=True):
        yield [(sign, value) for (sign, _), value in zip(terms, one, strict=True)]
