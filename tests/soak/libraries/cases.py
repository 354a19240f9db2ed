"""Short programs that the discipline takes, and some whose last step it refuses, for its tests."""

from __future__ import annotations

from dataclasses import replace

from .. import steps as p

STREAMS = (
    p.NewStream("t1", "torch", "pool"),
    p.NewStream("c2", "cupy", "non_blocking"),
    p.NewStream("n3", "numba", "blocking"),
    p.NewStream("c4", "cupy", "blocking"),
)
MAKE = p.Make("x1", "torch", "t1", 64, 1)
VIEW = p.ToCai("v2", "x1", "c2", at="t1")
TAKE = p.Take("y3", "v2", "cupy", "asarray", "c2")
READ = p.Read("r4", "y3")
CUPY = p.Make("x1", "cupy", "c2", 64, 1)
OF_CUPY = p.ToCai("v2", "x1", "t1", at="c2")
BY_TORCH = p.Take("y3", "v2", "torch", "as_tensor", "t1")
WRITE, RELEASE, AGAIN = p.Fill("x1", 9), p.Release("v2"), p.Read("r5", "x1")
# What is made, handed over and read, and then given back.
TAKEN = (MAKE, VIEW, TAKE)
IS_READ = (*TAKEN, READ)
TAKES_BACK = (BY_TORCH, READ, RELEASE, WRITE)
OF_JAX = p.Make("x1", "jax", None, 64, 1)
TO_JAX = (MAKE, p.FromCai("v2", "x1", at="t1"), p.Take("y3", "v2", "jax", "from_dlpack"))
TENSOR_OF_JAX = (OF_JAX, p.ToCai("v2", "x1"), p.FromCai("v5", "v2"))
CALL = p.CallLibrary(None, "x1", "cupy", "c2", "r4", value=8, at="t1")
NEW = replace(CALL, name="y5", does="new", back="t1", value=0, fresh=9)
BOTH = replace(CALL, name="y5", does="both", back="t1", fresh=9, again="r6")
READ_NEW = p.Read("r7", "y5")
WARP = p.NewStream("w5", "warp", "blocking")
OF_WARP = (WARP, p.Make("x1", "warp", "w5", 64, 1), p.ToCai("v2", "x1", "t1", at="w5"))

RIGHT = {
    "a read in the consumer": IS_READ,
    "a write after the view is released": (*IS_READ, RELEASE, WRITE),
    "a write after all is dropped": (*IS_READ, p.Drop("y3"), p.Drop("v2"), WRITE),
    "a write after the host has waited": (*IS_READ, p.Sync(), WRITE),
    "two readers side by side": (*IS_READ, AGAIN),
    "a writer that gives back": (*TAKEN, p.Fill("y3", 9), RELEASE, AGAIN),
    "the last name goes while somebody reads": (
        *(*TAKEN, p.Drop("x1"), p.Drop("v2"), READ, p.Drop("y3")),
        p.Reuse("torch", "t1", 64, 9),
    ),
    "a producer without a known stream, on the default stream's side": (
        *(replace(CUPY, stream="c4"), replace(OF_CUPY, at="c4"), *TAKES_BACK),
    ),
    "a write by a function, and one after it": (MAKE, CALL, p.Read("r7", "x1"), WRITE),
    "a new array of a function": (MAKE, NEW, READ_NEW, p.Fill("y5", 9)),
    "an array and a new one": (MAKE, BOTH, READ_NEW, p.Drop("y5"), p.Sync(), WRITE),
    "a new array of the function's library": (
        *(MAKE, replace(NEW, returns="cupy", name="x5", back="c2"), p.Read("r7", "x5")),
        *(p.Drop("x5"), p.Reuse("cupy", "c2", 64, 9)),
    ),
    "a new array of a third library": (
        *(MAKE, replace(NEW, returns="tvm_ffi", back=None), READ_NEW, p.Drop("y5")),
    ),
    "JAX's array for a function that reads": (
        *(OF_JAX, replace(NEW, at=None, back=None, readonly=False)),
    ),
    "Warp's array, which the default stream's side gives back": (*OF_WARP, *TAKES_BACK),
    "a capsule for Warp": (
        *(WARP, MAKE, p.FromCai("v2", "x1", at="t1")),
        *(p.Take("y3", "v2", "warp", "from_dlpack", "w5"), READ),
    ),
}
WRONG = {
    "a second stream of Warp's": (WARP, replace(WARP, name="w6")),
    "an export on another stream than Warp's": (*OF_WARP[:2], replace(OF_WARP[2], at=None)),
    "Warp by a dict that names another stream": (
        *(WARP, CUPY, p.ToCai("v2", "x1", at="c2"), p.Take("y3", "v2", "warp", "array", "w5")),
    ),
    "read-only memory for Warp": (
        *(WARP, *TENSOR_OF_JAX, p.Take("y3", "v5", "warp", "from_dlpack", "w5")),
    ),
    "a function that is given a stream that is not current": (MAKE, replace(CALL, at=None)),
    "a function of the array's own library": (MAKE, replace(CALL, library="torch", stream="t1")),
    "a function that writes what somebody reads": (*IS_READ, CALL),
    "a function that writes JAX's own": (OF_JAX, replace(CALL, at=None, readonly=False)),
    "a function that writes what JAX has": (*TO_JAX, CALL),
    "JAX's array without a word that it is only read": (OF_JAX, replace(NEW, at=None, back=None)),
    "a function of JAX's that writes": (MAKE, replace(CALL, library="jax", stream=None)),
    "a new array of tvm-ffi": (MAKE, replace(NEW, library="tvm_ffi", stream=None)),
    "a result on another stream than its library's current one": (
        *(p.NewStream("t8", "torch", "pool"), MAKE, replace(NEW, back="t8")),
    ),
    "a write while a consumer reads": (*IS_READ, WRITE),
    "a write when only the array was dropped": (*IS_READ, p.Drop("y3"), WRITE),
    "a read beside a writer": (*TAKEN, p.Fill("y3", 9), AGAIN),
    "a use after the release": (*TAKEN, RELEASE, READ),
    "another stream than the view is for": (MAKE, VIEW, replace(TAKE, stream="c4")),
    "torch by a dict that names another stream": (CUPY, p.ToCai("v2", "x1", at="c2"), BY_TORCH),
    "an export on another stream than the array's": (MAKE, replace(VIEW, at=None)),
    "a producer without a known stream, on a non-blocking one": (CUPY, OF_CUPY, *TAKES_BACK),
    "a write to what JAX has": (*TO_JAX, WRITE),
    "a write to JAX's own": (OF_JAX, WRITE),
    "read-only memory for JAX": (*TENSOR_OF_JAX, p.Take("y3", "v5", "jax", "from_dlpack")),
    "an array that is garbage with its view": (
        *(p.Make("x1", "numba", "n3", 64, 1), p.FromCai("v2", "x1"), p.Cycle("x1"), p.Cycle("v2")),
    ),
    "a release beside work that does not go back to the array": (
        *(*TAKEN, p.ToCai("v5", "y3", "c4", at="c2"), p.Take("y6", "v5", "cupy", "asarray", "c4")),
        *(p.Fill("y6", 9), p.Drop("v5"), p.Drop("y6"), RELEASE),
    ),
    "a name that is gone": (MAKE, p.Drop("x1"), p.Read("r4", "x1")),
}

# Steps, and how they are written down.
LISTED = {
    STREAMS[0]: "t1 = torch.cuda.Stream()",
    STREAMS[1]: "c2 = cupy.cuda.Stream(non_blocking=True)",
    replace(MAKE, spin=0.5): (
        "with torch.cuda.stream(t1): spin(t1, 0.5 ms); x1 = torch.full((64,), 1.0, device='cuda')"
    ),
    replace(VIEW, stream="c2.handle", current="c2"): (
        "with torch.cuda.stream(t1), c2: v2 = to_cai(x1, stream=c2.ptr)"
    ),
    replace(TAKE, how="memory"): "with c2: y3 = ndarray_over(UnownedMemory(v2.ptr, owner=v2))",
    p.Release("v2", "c2.handle"): "v2.release(c2.ptr)",
    CALL: (
        "with torch.cuda.stream(t1), c2: "
        "adapt(lambda a: (r4 = copy(a); fill(a, 8); None), 'cupy')(x1)"
    ),
    replace(NEW, returns="cupy", back="c2", readonly=False): (
        "with torch.cuda.stream(t1), c2: y5 = adapt(lambda a: (r4 = copy(a); new = full(9); new), "
        "'cupy', returns='cupy', readonly=False)(x1)"
    ),
    BOTH: (
        "with torch.cuda.stream(t1), c2: same, y5 = adapt(lambda a: (r4 = copy(a); fill(a, 8); "
        "new = full(9); (a, new)), 'cupy')(x1); r6 = copy(same); del same"
    ),
}
