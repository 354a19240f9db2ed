"""Calls each function of the driver that `cai-bridge perturb` hooks, and prints what came of it.

    python launches.py symbol|asked named|own|legacy

The first word is how it comes by the functions: by `dlsym`, or by `cuGetProcAddress`. The second
is the stream: one of its own, the thread's own default stream or the legacy one. A line has the
function and `done` or `pending`: for work whether it was done 20 ms later, for the rest whether the
work that it waits for was done within 2 s. Late work is to be later than that.
"""

import ctypes
import sys
import time
from ctypes import byref, c_int, c_uint, c_uint64, c_void_p

from soft import LEGACY, PER_THREAD, call, cuda, ended, event, launch, made, peek, stream, word

WAY, WHERE = sys.argv[1:]
CONTEXT = 0x100000
SOON, WITHIN = 0.02, 2.0
plain = ctypes.CDLL("libcuda.so.1")
"""The driver, whose functions take words."""
kept = []
"""What the driver is given an address of."""
s = {"named": stream(), "own": PER_THREAD, "legacy": LEGACY}[WHERE]
given = 0 if WHERE != "named" else s
x, h, g = word(), word(), word()
c_uint64.from_address(x).value = 1


def function(symbol, version):
    """Find a function, in the form that this program uses."""
    synchronous = symbol.removesuffix("_v2") in SYNCHRONOUS
    own = WHERE == "own" and symbol not in ONE_FORM
    if WAY == "symbol":
        found = getattr(plain, symbol + (("_ptds" if synchronous else "_ptsz") if own else ""))
    else:
        name = symbol.removesuffix("_v2").replace("InstantiateWithFlags", "Instantiate").encode()
        to = c_void_p()
        asked = cuda.cuGetProcAddress_v2
        code = asked(name, byref(to), c_int(version), c_uint64(2 if own else 1), None)
        assert code == 0, symbol
        found = ctypes.CFUNCTYPE(c_uint)(to.value)
    found.restype = c_uint

    def called(*words):
        code = found(*[c_uint64(one) for one in words])
        assert code == 0, f"{symbol}: {code}"

    return called


def words(*values):
    """Keep these words, and return their address."""
    kept.append((c_uint64 * len(values))(*values))
    return ctypes.addressof(kept[-1])


def fill():
    return made("cuModuleGetFunction", 0, b"fill")


def arguments():
    return words(words(h), words(1))


def config():
    return words(1 | 1 << 32, 1 | 1 << 32, 1 | 1 << 32, 0, given, 0, 0)


def copy_2d():
    return words(0, 0, 2, 0, x, 0, 8, 0, 0, 2, 0, h, 0, 8, 8, 1)


def copy_3d():
    return words(*[0] * 6, x, *[0] * 10, h, *[0] * 4, 8, 1, 1)


def graph():
    other = stream()
    call("cuStreamBeginCapture_v2", other, 2)
    launch("fill", other, h, 1, pause=0)
    return ended(other)


def callback(*kinds):
    kept.append(ctypes.CFUNCTYPE(None, *kinds)(lambda *_: write()))
    return ctypes.cast(kept[-1], c_void_p).value or 0


def write():
    c_uint64.from_address(h).value = 1


SYNCHRONOUS = {"cuMemcpyDtoD", "cuMemsetD8", "cuMemsetD16", "cuMemsetD32", "cuMemcpy"}
SYNCHRONOUS |= {"cuMemcpyAtoH", "cuMemcpyHtoA", "cuMemcpy3DPeer"}
SYNCHRONOUS |= {"cuMemcpyDtoH", "cuMemcpyHtoD", "cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy3D"}
ASYNC = {
    ("cuLaunchKernel", 7000): lambda: (fill(), 1, 1, 1, 1, 1, 1, 0, given, arguments(), 0),
    ("cuLaunchKernelEx", 11060): lambda: (config(), fill(), arguments(), 0),
    ("cuLaunchCooperativeKernel", 9000): lambda: (
        *(fill(), 1, 1, 1, 1, 1, 1, 0, given, arguments()),
    ),
    ("cuGraphLaunch", 10000): lambda: (graph(), given),
    ("cuMemcpyAsync", 7000): lambda: (h, x, 8, given),
    ("cuMemcpyHtoDAsync_v2", 7000): lambda: (h, x, 8, given),
    ("cuMemcpyDtoHAsync_v2", 7000): lambda: (h, x, 8, given),
    ("cuMemcpyDtoDAsync_v2", 7000): lambda: (h, x, 8, given),
    ("cuMemcpy2DAsync_v2", 7000): lambda: (copy_2d(), given),
    ("cuMemcpy3DAsync_v2", 7000): lambda: (copy_3d(), given),
    ("cuMemcpyPeerAsync", 7000): lambda: (h, CONTEXT, x, CONTEXT, 8, given),
    ("cuMemcpy3DPeerAsync", 7000): lambda: (copy_3d(), given),
    ("cuMemcpyBatchAsync", 12080): lambda: (words(h), words(x), words(8), 1, 0, 0, 0, 0, given),
    ("cuMemcpyBatchAsync_v2", 13000): lambda: (words(h), words(x), words(8), 1, 0, 0, 0, given),
    ("cuMemcpy3DBatchAsync", 12080): lambda: (1, words(h, x, 8), 0, 0, given),
    ("cuMemcpy3DBatchAsync_v2", 13000): lambda: (1, words(h, x, 8), 0, given),
    ("cuMemsetD8Async", 7000): lambda: (h, 1, 8, given),
    ("cuMemsetD16Async", 7000): lambda: (h, 1, 4, given),
    ("cuMemsetD32Async", 7000): lambda: (h, 1, 2, given),
    ("cuMemsetD2D8Async", 7000): lambda: (h, 4, 1, 4, 2, given),
    ("cuMemsetD2D16Async", 7000): lambda: (h, 4, 1, 2, 2, given),
    ("cuMemsetD2D32Async", 7000): lambda: (h, 4, 1, 1, 2, given),
    ("cuMemFreeAsync", 11020): lambda: (h, given),
    ("cuMemPrefetchAsync", 8000): lambda: (h, 8, 0, given),
    ("cuMemPrefetchAsync_v2", 12020): lambda: (h, 8, 0, 0, given),
    ("cuStreamWriteValue32_v2", 11070): lambda: (given, h, 1, 0),
    ("cuStreamWriteValue64_v2", 11070): lambda: (given, h, 1, 0),
}
ON_DEFAULT = {
    ("cuMemcpyDtoD_v2", 7000): lambda: (h, x, 8),
    ("cuMemsetD8_v2", 7000): lambda: (h, 1, 8),
    ("cuMemsetD16_v2", 7000): lambda: (h, 1, 4),
    ("cuMemsetD32_v2", 7000): lambda: (h, 1, 2),
}
CALLS = {
    ("cuLaunchHostFunc", 10000): lambda: (given, callback(c_void_p), 0),
    ("cuStreamAddCallback", 7000): lambda: (given, callback(c_void_p, c_uint, c_void_p), 0, 0),
}
BLOCKING = {
    ("cuMemcpy", 7000): lambda: (g, x, 8),
    ("cuMemcpyDtoH_v2", 7000): lambda: (g, x, 8),
    ("cuMemcpyHtoD_v2", 7000): lambda: (g, x, 8),
    ("cuMemcpy2D_v2", 7000): lambda: (copy_2d(),),
    ("cuMemcpy2DUnaligned_v2", 7000): lambda: (copy_2d(),),
    ("cuMemcpy3D_v2", 7000): lambda: (copy_3d(),),
}
WAITS = {
    ("cuStreamSynchronize", 7000): lambda: (given,),
    ("cuEventSynchronize", 2000): lambda: (recorded(),),
    ("cuCtxSynchronize", 2000): lambda: (),
    ("cuCtxSynchronize_v2", 13000): lambda: (CONTEXT,),
    ("cuMemFree_v2", 3020): lambda: (0,),
    ("cuMemFreeHost", 2000): lambda: (0,),
    ("cuMemAllocHost_v2", 3020): lambda: (words(0), 8),
    ("cuMemHostAlloc", 2020): lambda: (words(0), 8, 0),
    ("cuMemHostUnregister", 4000): lambda: (0,),
    ("cuModuleUnload", 2000): lambda: (5,),
}
ENDS = {
    ("cuStreamDestroy_v2", 4000): lambda: (stream(),),
    ("cuDevicePrimaryCtxReset_v2", 11000): lambda: (0,),
    ("cuDevicePrimaryCtxRelease_v2", 11000): lambda: (0,),
    ("cuCtxDestroy_v2", 4000): lambda: (CONTEXT,),
}
NOTED = {
    ("cuMemcpyAtoH_v2", 3020): lambda: (g, 1, 0, 8),
    ("cuMemcpyHtoA_v2", 3020): lambda: (1, 0, g, 8),
    ("cuMemcpy3DPeer", 4000): lambda: (copy_3d(),),
    ("cuMemAlloc_v2", 3020): lambda: (words(0), 8),
    ("cuMemAllocPitch_v2", 3020): lambda: (words(0), words(0), 8, 2, 4),
    ("cuMemAllocManaged", 6000): lambda: (words(0), 8, 1),
    ("cuMemAllocAsync", 11020): lambda: (words(0), 8, given),
    ("cuMemAllocFromPoolAsync", 11020): lambda: (words(0), 8, 1, given),
    ("cuMemHostRegister_v2", 6050): lambda: (words(0), 8, 0),
    ("cuMemMap", 10020): lambda: (1 << 40, 8, 0, 1, 0),
    ("cuMemUnmap", 10020): lambda: (1 << 40, 8),
    ("cuIpcGetMemHandle", 4010): lambda: (words(*[0] * 8), x),
    ("cuStreamCreate", 2000): lambda: (words(0), 1),
    ("cuStreamCreateWithPriority", 5050): lambda: (words(0), 1, 0),
    ("cuStreamQuery", 2000): lambda: (given,),
    ("cuEventCreate", 2000): lambda: (words(0), 2),
    ("cuEventQuery", 2000): lambda: (recorded(waited=True),),
    ("cuEventElapsedTime", 2000): lambda: (words(0), recorded(waited=True), recorded(waited=True)),
    ("cuEventElapsedTime_v2", 12080): lambda: (
        *(words(0), recorded(waited=True), recorded(waited=True)),
    ),
    ("cuEventDestroy_v2", 4000): lambda: (event(),),
    ("cuStreamWaitValue32_v2", 11070): lambda: (given, x, 1, 0),
    ("cuStreamWaitValue64_v2", 11070): lambda: (given, x, 1, 0),
    ("cuStreamBatchMemOp_v2", 11070): lambda: (given, 0, 0, 0),
    ("cuWaitExternalSemaphoresAsync", 10000): lambda: (0, 0, 0, given),
    ("cuGraphInstantiate_v2", 11000): lambda: (words(0), graph(), 0, 0, 0),
    ("cuGraphInstantiateWithFlags", 12000): lambda: (words(0), graph(), 0),
    ("cuGraphInstantiateWithParams", 12000): lambda: (words(0), graph(), 0),
    ("cuGraphExecUpdate", 10020): lambda: (graph(), graph(), 0, 0),
    ("cuGraphExecUpdate_v2", 12000): lambda: (graph(), graph(), 0),
    ("cuGraphExecKernelNodeSetParams", 10010): lambda: (graph(), node(), node()),
    ("cuGraphExecKernelNodeSetParams_v2", 12000): lambda: (graph(), node(), node()),
    ("cuGraphExecMemcpyNodeSetParams", 10020): lambda: (graph(), node(), node(), 0),
    ("cuGraphExecMemsetNodeSetParams", 10020): lambda: (graph(), node(), node(), 0),
    ("cuGraphExecChildGraphNodeSetParams", 11010): lambda: (graph(), node(), node()),
    ("cuGraphExecEventRecordNodeSetEvent", 11010): lambda: (graph(), node(), event()),
    ("cuGraphExecEventWaitNodeSetEvent", 11010): lambda: (graph(), node(), event()),
    ("cuGraphExecNodeSetParams", 12020): lambda: (graph(), node(), node()),
    ("cuTensorMapEncodeTiled", 12000): lambda: (words(*[0] * 16), 1, 1, x, *[0] * 8),
    ("cuTensorMapEncodeIm2col", 12000): lambda: (words(*[0] * 16), 1, 1, x, *[0] * 11),
    ("cuTensorMapReplaceAddress", 12000): lambda: (words(*[0] * 16), x),
    ("cuGraphExecDestroy", 10000): lambda: (graph(),),
    ("cuLibraryUnload", 12000): lambda: (1,),
}
TWO_FORMS = {"cuStreamSynchronize", "cuStreamQuery", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"}
TWO_FORMS |= {"cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2", "cuStreamBatchMemOp_v2"}
TWO_FORMS |= {"cuMemcpyAtoH_v2", "cuMemcpyHtoA_v2", "cuMemcpy3DPeer"}
TWO_FORMS |= {"cuWaitExternalSemaphoresAsync", "cuGraphInstantiateWithParams"}
ONE_FORM = {symbol for symbol, _ in (*WAITS, *ENDS, *NOTED)} - TWO_FORMS


def node():
    """Return a node of a graph."""
    to = c_uint64()
    assert cuda.cuGraphGetNodes(c_uint64(graph()), byref(to), byref(c_uint64(1))) == 0
    return to.value


def recorded(*, waited=False):
    mark = event()
    call("cuEventRecord", mark, s)
    if waited:
        call("cuEventSynchronize", mark)
    return mark


def state():
    return peek(h), cuda.soft_count(3)


def say(symbol, *, done):
    print(symbol, "done" if done else "pending", flush=True)


def work(symbol, version, made):
    """Queue work, and see whether it was done soon."""
    c_uint64.from_address(h).value = 0
    queue, given_to_it = function(symbol, version), made()
    before = state()
    queue(*given_to_it)
    time.sleep(SOON)
    say(symbol, done=state() != before)
    call("cuStreamSynchronize", s)
    assert state() != before, symbol


def wait(symbol, version, made):
    """Have the host wait for work."""
    c_uint64.from_address(h).value = 0
    host_waits = function(symbol, version)
    launch("fill", s, h, 1, pause=0)
    ends = time.monotonic() + WITHIN
    host_waits(*made())
    while not peek(h) and time.monotonic() < ends:
        time.sleep(0.001)
    say(symbol, done=time.monotonic() < ends)


def orders():
    """Have a stream wait for another, and the host for that."""
    wait_for = function("cuStreamWaitEvent", 7000)
    for symbol, version in (("cuEventRecord", 7000), ("cuEventRecordWithFlags", 11010)):
        c_uint64.from_address(h).value = 0
        mark, record = event(), function(symbol, version)
        launch("fill", s, h, 1, pause=0)
        began = time.monotonic()
        record(mark, given, *([0] if "Flags" in symbol else []))
        if WHERE == "named":
            wait_for(other, mark, 0)
            call("cuStreamSynchronize", other)
        else:
            # The stream that waits is the default one: the event is another's.
            launch("fill", other, h, 2, pause=0)
            call("cuEventRecord", mark, other)
            wait_for(0, mark, 0)
            call("cuStreamSynchronize", s)
        say(symbol, done=time.monotonic() - began < WITHIN and peek(h) > 0)
    say("cuStreamWaitEvent", done=True)


def captures():
    """Capture: neither a gate nor a wait comes in between."""
    for symbol, version in (
        ("cuStreamBeginCapture_v2", 10010),
        ("cuStreamBeginCaptureToGraph", 12030),
    ):
        if WHERE == "legacy":  # it cannot be captured
            continue
        rest = [0] if symbol.endswith("_v2") else [made("cuGraphCreate", 0), 0, 0, 0, 0]
        function(symbol, version)(given, *rest)
        launch("fill", s, h, 1, pause=0)
        function("cuStreamEndCapture", 10000)(given, words(0))
        say(symbol, done=not cuda.soft_count(2))
        say("cuStreamEndCapture", done=True)


other = stream()
launch("fill", s, g, 1)
call("cuStreamSynchronize", s)
for (symbol, version), how in (ASYNC if WHERE == "named" else ASYNC | ON_DEFAULT).items():
    work(symbol, version, how)
for (symbol, version), how in (WAITS if WHERE == "named" else WAITS | BLOCKING).items():
    wait(symbol, version, how)
orders()
captures()
for (symbol, version), how in CALLS.items():
    work(symbol, version, how)
call("cuCtxSynchronize")
for (symbol, version), how in (NOTED | ENDS).items():
    function(symbol, version)(*how())
    say(symbol, done=True)
