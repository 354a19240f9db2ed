"""Short programs that the discipline takes, and some whose last step it refuses, for its tests."""

from __future__ import annotations

from dataclasses import replace

from . import program as p

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

RIGHT = {
    "a read in the consumer": (MAKE, VIEW, TAKE, READ),
    "a write after the view is released": (
        MAKE,
        VIEW,
        TAKE,
        READ,
        p.Release("v2"),
        p.Write("x1", 9),
    ),
    "a write after all is dropped": (
        *(MAKE, VIEW, TAKE, READ),
        *(p.Drop("y3"), p.Drop("v2"), p.Write("x1", 9)),
    ),
    "a write after the host has waited": (MAKE, VIEW, TAKE, READ, p.Sync(), p.Write("x1", 9)),
    "two readers side by side": (MAKE, VIEW, TAKE, READ, p.Read("r5", "x1")),
    "a writer that gives back": (
        *(MAKE, VIEW, TAKE, p.Write("y3", 9)),
        *(p.Release("v2"), p.Read("r5", "x1")),
    ),
    "the last name goes while somebody reads": (
        *(MAKE, VIEW, TAKE, p.Drop("x1"), p.Drop("v2"), READ),
        *(p.Drop("y3"), p.Reuse("torch", "t1", 64, 9)),
    ),
    "a producer without a known stream, on the default stream's side": (
        replace(CUPY, stream="c4"),
        replace(OF_CUPY, at="c4"),
        *(BY_TORCH, READ, p.Release("v2"), p.Write("x1", 9)),
    ),
}
WRONG = {
    "a write while a consumer reads": (MAKE, VIEW, TAKE, READ, p.Write("x1", 9)),
    "a write when only the array was dropped": (
        *(MAKE, VIEW, TAKE, READ),
        *(p.Drop("y3"), p.Write("x1", 9)),
    ),
    "a read beside a writer": (MAKE, VIEW, TAKE, p.Write("y3", 9), p.Read("r5", "x1")),
    "a use after the release": (MAKE, VIEW, TAKE, p.Release("v2"), READ),
    "another stream than the view is for": (MAKE, VIEW, replace(TAKE, stream="c4")),
    "torch by a dict that names another stream": (*(CUPY, p.ToCai("v2", "x1", at="c2"), BY_TORCH),),
    "an export on another stream than the array's": (MAKE, replace(VIEW, at=None)),
    "a producer without a known stream, on a non-blocking one": (
        *(CUPY, OF_CUPY, BY_TORCH, READ, p.Release("v2"), p.Write("x1", 9)),
    ),
    "a write to what JAX has": (
        *(MAKE, p.FromCai("v2", "x1", at="t1")),
        *(p.Take("y3", "v2", "jax", "from_dlpack"), p.Write("x1", 9)),
    ),
    "a write to JAX's own": (p.Make("x1", "jax", None, 64, 1), p.Write("x1", 9)),
    "read-only memory for JAX": (
        *(p.Make("x1", "jax", None, 64, 1), p.ToCai("v2", "x1")),
        *(p.FromCai("v5", "v2"), p.Take("y3", "v5", "jax", "from_dlpack")),
    ),
    "an array that is garbage with its view": (
        *(p.Make("x1", "numba", "n3", 64, 1), p.FromCai("v2", "x1")),
        *(p.Cycle("x1"), p.Cycle("v2")),
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
}
