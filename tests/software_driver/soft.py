"""A program's side of the driver in software: words of memory, streams, events and kernels."""

import ctypes
import time
from ctypes import POINTER, byref, c_int, c_uint, c_uint64, c_void_p

NON_BLOCKING = 1
LEGACY = 1
PER_THREAD = 2
cuda = ctypes.CDLL("libcuda.so.1")
cuda.soft_count.restype = c_uint64
cuda.soft_count.argtypes = [c_int]
_ARGUMENTS = {
    "cuMemAlloc_v2": [POINTER(c_uint64), c_uint64],
    "cuMemHostAlloc": [POINTER(c_uint64), c_uint64, c_uint],
    "cuStreamCreate": [POINTER(c_uint64), c_uint],
    "cuStreamDestroy_v2": [c_uint64],
    "cuStreamSynchronize": [c_uint64],
    "cuStreamBeginCapture_v2": [c_uint64, c_uint],
    "cuStreamEndCapture": [c_uint64, POINTER(c_uint64)],
    "cuGraphInstantiateWithFlags": [POINTER(c_uint64), c_uint64, c_uint64],
    "cuGraphLaunch": [c_uint64, c_uint64],
    "cuEventCreate": [POINTER(c_uint64), c_uint],
    "cuEventRecord": [c_uint64, c_uint64],
    "cuEventSynchronize": [c_uint64],
    "cuStreamWaitEvent": [c_uint64, c_uint64, c_uint],
    "cuMemcpyAsync": [c_uint64, c_uint64, c_uint64, c_uint64],
    "cuMemcpyDtoHAsync_v2": [c_uint64, c_uint64, c_uint64, c_uint64],
    "cuMemcpyDtoH_v2": [c_uint64, c_uint64, c_uint64],
    "cuModuleGetFunction": [POINTER(c_uint64), c_uint64, ctypes.c_char_p],
    "cuLaunchKernel": [c_uint64, *[c_uint] * 7, c_uint64, c_void_p, c_void_p],
}


def call(name, *arguments):
    """Call the driver."""
    function = getattr(cuda, name)
    function.argtypes = _ARGUMENTS.get(name, [])
    function.restype = c_uint
    code = function(*arguments)
    assert code == 0, f"{name}: {code}"


def made(name, *arguments):
    """Call a function that gives back a number by its first argument."""
    to = c_uint64()
    call(name, byref(to), *arguments)
    return to.value


def stream(flags=NON_BLOCKING):
    return made("cuStreamCreate", flags)


def word():
    return made("cuMemAlloc_v2", 8)


def pinned():
    return made("cuMemHostAlloc", 8, 0)


def event():
    return made("cuEventCreate", 2)


def launch(name, on, *words, symbol="cuLaunchKernel", pause=0.003):
    """Launch a kernel by its name, and give it time: a host is slower than a GPU."""
    kernel = made("cuModuleGetFunction", 0, name.encode())
    values = [c_uint64(one) for one in words]
    addresses = (c_void_p * 4)(*[ctypes.addressof(one) for one in values])
    function = getattr(cuda, symbol)
    function.argtypes = _ARGUMENTS["cuLaunchKernel"]
    assert function(kernel, 1, 1, 1, 1, 1, 1, 0, on, ctypes.addressof(addresses), None) == 0
    time.sleep(pause)


def order(first, second):
    """Make the second stream wait for the first."""
    mark = event()
    call("cuEventRecord", mark, first)
    call("cuStreamWaitEvent", second, mark, 0)


def read(address, on):
    """Copy a word to pageable memory, for which the host waits."""
    to = c_uint64()
    call("cuMemcpyDtoHAsync_v2", ctypes.addressof(to), address, 8, on)
    return to.value


def peek(address):
    """Read host memory, now."""
    return c_uint64.from_address(address).value


def ended(on):
    """End a capture, and return its graph."""
    to = c_uint64()
    call("cuStreamEndCapture", on, byref(to))
    return to.value
