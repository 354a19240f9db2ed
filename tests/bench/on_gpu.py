"""Rows for a GPU: the bridge beside the libraries' own ways, in one run."""

import importlib
import os
import sys
import tomllib
from pathlib import Path

from floors import floor_rows, parts
from timing import CALLS, Pair, Row, least_host_ms

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")

PENDING_MS = 100.0
HOST_BUDGET_MS = 0.1
CONVERT_BUDGET_MS = 0.05

# What `convert` makes arrays of without a wait of the host, and the modules that have them.
LIBRARIES = {
    **{name: name for name in ("torch", "cupy", "jax", "tvm_ffi", "warp", "rmm")},
    "numba": "numba.cuda",
    "cuda": "cuda.core",
}
TABLE = Path(__file__).with_name("pairs.toml")


def groups():
    """The table's groups: name, calls a round, pairs."""
    for group in tomllib.loads(TABLE.read_text())["group"]:
        pairs = [Pair(**{"name": pair["bridge"], **pair}) for pair in group["pair"]]
        yield group["name"], group.get("calls", CALLS), pairs


def names():
    """What the statements speak of; a library that is missing leaves its names out."""
    import numpy as np

    from cai_bridge import convert, from_cai, to_cai

    if not hasattr(np, "row_stack"):  # numba 0.68 still reads the name at import
        np.row_stack = np.vstack
    found = {"convert": convert, "from_cai": from_cai, "to_cai": to_cai}
    for add in (add_torch, add_cupy, add_numba, add_jax, add_core, add_tvm):
        try:
            add(found, np)
        except Exception as error:
            left_out(add.__name__.removeprefix("add_"), error)
    if "t" in found:
        found["cai"] = to_cai(found["t"])
        if "cuda" in found:
            found["nt"] = convert(found["t"], "numba")
    if "c" in found:
        found["view"] = from_cai(found["c"])
        found["stub"] = Stub(dict(found["c"].__cuda_array_interface__))
    if "tvm_ffi" in found and "t" in found:
        found["tt"] = found["tvm_ffi"].from_dlpack(found["t"])
    return found


class Stub:
    """The cheapest CAI producer there is: a ready-made dict."""

    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


def add_torch(found, np):
    torch = importlib.import_module("torch")
    side, event, default = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.default_stream()
    found |= {
        "torch": torch,
        "back": lambda: (event.record(side), default.wait_event(event)),
        "t": torch.zeros(16, 16, device="cuda"),
        "tensors": list(torch.zeros(1000, 16, 16, device="cuda").unbind()),
        "side_object": side,
        "side": side.cuda_stream,
    }


def add_cupy(found, np):
    cupy = importlib.import_module("cupy")
    found |= {"cupy": cupy, "c": cupy.zeros((16, 16), np.float32)}
    if "side" not in found:
        side = cupy.cuda.Stream(non_blocking=True)
        found |= {"side_object": side, "side": side.ptr}


def add_numba(found, np):
    from numba import cuda

    @cuda.jit
    def kernel(array):
        if cuda.grid(1) == 0:
            array[0, 0] = 1.0

    found |= {"cuda": cuda, "kernel": kernel, "n": cuda.to_device(np.zeros((16, 16), np.float32))}


def add_jax(found, np):
    jax = importlib.import_module("jax")
    array = jax.block_until_ready(
        jax.device_put(np.zeros((16, 16), np.float32), jax.devices("gpu")[0])
    )
    found |= {"jax": jax, "j": array}


def add_core(found, np):
    found["SMV"] = importlib.import_module("cuda.core.utils").StridedMemoryView


def add_tvm(found, np):
    found["tvm_ffi"] = importlib.import_module("tvm_ffi")


# What is timed while the producer has work pending, in both directions.
HELD = {
    "to_cai(torch) and its dict": "to_cai(t).__cuda_array_interface__",
    "to_cai(torch, stream=side)": "to_cai(t, stream=consumer)",
    "from_cai(cupy).__dlpack__(stream=side)": "from_cai(c).__dlpack__(stream=consumer)",
    "tvm_ffi.from_dlpack(from_cai(cupy))": "tvm_ffi.from_dlpack(from_cai(c))",
}


def host_rows(found):
    """How long the host is held while the producer has work pending."""
    cuda, group = driver(), f"host held, {PENDING_MS:.0f} ms pending"
    names = {**found, "consumer": cuda.stream()}
    cases = [(name, text, HOST_BUDGET_MS) for name, text in HELD.items()]
    for library in libraries_there():
        source = "c" if library == "torch" else "t"
        text = f"convert({source}, {library!r})"
        cases.append((f"convert({source}, {library})", text, CONVERT_BUDGET_MS))
    for name, text, budget in cases:
        action = eval(f"lambda: {text}", names)
        try:
            for _ in range(20):
                action()
            # Both libraries work on the legacy default stream here, so that is where the work is
            # pending.
            held = least_host_ms(action, lambda: cuda.spin(1, PENDING_MS), cuda.synchronize)
        except Exception as error:
            yield Row(group, name, None, remark=f"{type(error).__name__}: {error}")
        else:
            yield Row(group, name, held, "ms", budget=budget)
    cuda.synchronize()
    cuda("cuStreamDestroy_v2", names["consumer"])


def left_out(name, error):
    print(f"left out: {name}: {type(error).__name__}: {error}", file=sys.stderr)


def libraries_there():
    """List the libraries that are installed."""
    there = []
    for library, module in LIBRARIES.items():
        try:
            importlib.import_module(module)
        except Exception as error:
            left_out(library, error)
        else:
            there.append(library)
    return there


def why_not():
    from gpu import driver as cuda_driver

    return cuda_driver.why_no_gpu()


def driver():
    """Load the driver; the primary context of its device is current from here on."""
    from gpu import driver as cuda_driver

    loaded = cuda_driver.load()
    loaded.use_primary()
    return loaded


def rows():
    found = names()
    # Before each of what takes turns: queues that fill up would be timed, too.
    settle = found["torch"].cuda.synchronize if "torch" in found else None
    known = parts(found)
    yield from floor_rows(found, known, settle)
    for group, calls, pairs in groups():
        for pair in pairs:
            yield pair.measure(group, found, calls, known, settle)
    yield from host_rows(found)
