"""The package: what importing it costs, its names and docs, and how views show themselves."""

import copy
import doctest
import importlib.metadata
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import pytest
from fakes import DLPackPair, OnlyDLPack, StreamObject, only_cai
from stand_in import no_libraries

import cai_bridge
import cai_bridge.conformance
import cai_bridge.testing
from cai_bridge import (
    CaiView,
    DLPackView,
    DriverError,
    HostSyncWarning,
    SupportsCudaArrayInterface,
    SupportsCudaStream,
    SupportsDLPack,
    from_cai,
    to_cai,
)


def run(program, *flags):
    done = subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.strip()


HEAVY = [
    *("numpy", "torch", "cupy", "jax", "jaxlib", "numba", "cuda", "tvm_ffi", "ml_dtypes"),
    "typing_extensions",
]
LATER = ["typing", "logging", "re", "inspect", "json", "cai_bridge._trace_format"]
# Programs, and what they print.
IMPORTS = {
    "no framework": (f"import cai_bridge; print({{*{HEAVY}}} & {{*sys.modules}})", "set()"),
    "nor does its testing module": (
        f"import cai_bridge.testing; print({{*{HEAVY}}} & {{*sys.modules}})",
        "set()",
    ),
    "nothing that takes long": (
        f"""
        later = {{*{LATER}}} - {{*sys.modules}}
        import cai_bridge
        print(later & {{*sys.modules}})
        from cai_bridge import SupportsDLPack
        print(SupportsDLPack.__name__, hasattr(cai_bridge, "Supports"))
        """,
        "set()\nSupportsDLPack False",
    ),
    "the conformance kit once it is asked for": (
        """
        import cai_bridge.testing as testing
        def loaded():
            return "cai_bridge.conformance" in sys.modules
        print(loaded(), testing.check_producer.__name__, loaded(), hasattr(testing, "nothing"))
        """,
        "False check_producer True False",
    ),
    "twice and anew": (
        """
        import importlib, cai_bridge
        importlib.reload(cai_bridge)
        importlib.reload(cai_bridge._events)
        from cai_bridge.testing import simulated_cuda
        with simulated_cuda() as cuda:
            print(cai_bridge.to_cai(cuda.array([1.0])).shape)
        """,
        "(1,)",
    ),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_importing_imports(name):
    program, printed = IMPORTS[name]
    assert run("import sys\n" + textwrap.dedent(program)) == printed


def test_importing_is_fast():
    program = """
        import time
        start = time.perf_counter()
        import cai_bridge
        print(time.perf_counter() - start)
    """
    # About 10 ms.
    assert min(float(run(program)) for _ in range(3)) < 0.5


def test_the_version_is_the_distributions_and_there_without_docs_and_asserts():
    version = importlib.metadata.version("cai-bridge")
    assert cai_bridge.__version__ == version
    assert run("import cai_bridge; print(cai_bridge.__version__)", "-OO") == version


@pytest.mark.parametrize("first", ["import logging", "pass"])
def test_what_is_logged_is_heard_whenever_logging_is_imported(first):
    program = f"""
        import sys
        {first}
        import cai_bridge
        finders = len(sys.meta_path)
        import logging
        print(finders - len(sys.meta_path), logging.__spec__.loader.exec_module.__name__)
        from cai_bridge.testing import simulated_cuda
        logging.basicConfig(level=logging.DEBUG, format="%(name)s", stream=sys.stdout)
        with simulated_cuda() as cuda:
            cai_bridge.to_cai(cuda.array([1.0]))
    """
    expected = 1 if first == "pass" else 0
    heard = run(program).splitlines()
    assert heard[0] == f"{expected} exec_module"
    assert set(heard[1:]) == {"cai_bridge"}


def test_all_is_sorted_and_complete():
    public = {name for name in dir(cai_bridge) if not name.startswith("_")}
    public -= {name for name in public if inspect.ismodule(getattr(cai_bridge, name))}
    assert cai_bridge.__all__ == sorted({*public, "__version__"})


@pytest.mark.parametrize("module", [cai_bridge, cai_bridge.testing])
def test_type_checkers_see_each_name_used(module):
    lines = Path(__file__).parents[1].joinpath("typing", "public.py").read_text().splitlines()
    used = set(re.findall(r"\w+", "\n".join(one for one in lines if not one.endswith(","))))
    assert [name for name in module.__all__ if name not in used] == []


def public():
    """Each public function, class and method, those of derived classes too, by its name."""
    for module in (cai_bridge, cai_bridge.testing, cai_bridge.conformance):
        found = [getattr(module, name) for name in module.__all__]
        for kind in filter(inspect.isclass, found):
            found += (one for one in kind.__subclasses__() if one not in found)
        for one in found:
            members = vars(one).values() if inspect.isclass(one) else ()
            # A property's hints are its function's, and so are a cached one's.
            members = [getattr(it, "fget", getattr(it, "func", it)) for it in members]
            for it in (one, *members):
                if inspect.isfunction(it) or (inspect.isclass(it) and it is one):
                    yield f"{it.__module__}.{it.__qualname__}", it


def test_hints_are_found_at_run_time():
    found = dict(public())
    for name, one in found.items():
        try:
            typing.get_type_hints(one)
        except NameError as error:
            pytest.fail(f"{name}: {error}")
    assert len(found) > 400, "does the search still see them?"
    assert typing.get_type_hints(cai_bridge.Library)["writes"] is bool


def test_a_build_without_rust_says_what_is_missing():
    """The Rust that it names is the oldest that Cargo.toml promises."""
    root = Path(__file__).parents[2]
    command = [sys.executable, root / "make" / "backend.py"]
    done = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)
    oldest = re.search(r'^rust-version = "(.*)"$', (root / "Cargo.toml").read_text(), re.MULTILINE)
    assert done.returncode == 1
    assert "got no `cargo` on PATH" in done.stderr
    assert f"needs Rust {oldest[1]} or later" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "call", [to_cai, from_cai, DLPackView.__dlpack__], ids=lambda c: c.__name__
)
def test_a_functions_doc_names_every_argument_what_it_returns_and_raises(call):
    doc = inspect.getdoc(call)
    sections = re.findall(r"^(\w+)\n-+$", doc, flags=re.M)
    assert sections[:4] == ["Parameters", "Returns", "Raises", "Notes"]
    assert sections[4:] == ["Examples"] * (call.__name__ != "__dlpack__")
    documented = re.findall(r"^(\w+) : ", doc.split("Returns\n")[0], flags=re.M)
    names = [name for name in inspect.signature(call).parameters if name != "self"]
    assert documented == names
    for error in ("BufferError", "ValueError", "TypeError", "DriverError"):
        assert error in doc.split("Raises\n")[1]
    assert re.search(r"CUDA Array Interface \(Version 3\)|DLPack 1\.3", doc.split("Notes\n")[1])


def test_signatures_are_the_contracts():
    assert [str(inspect.signature(one)) for one in (to_cai, from_cai, DLPackView.__dlpack__)] == [
        "(x, stream=None, readonly=None)",
        "(x, stream=None, readonly=None, owner=None, device=None, dtype=None)",
        "(self, /, stream=None, *, max_version=None, dl_device=None, copy=None)",
    ]


@pytest.mark.parametrize("kind", [CaiView, DLPackView])
def test_every_attribute_of_a_view_has_a_doc(kind):
    assert inspect.getdoc(kind)
    public = [name for name in dir(kind) if not name.startswith("_")]
    assert {"shape", "strides", "typestr", "dtype", "owner", "stream", "release"} <= set(public)
    for name in public:
        assert len(inspect.getdoc(getattr(kind, name)) or "") >= 20, name


@pytest.mark.parametrize(
    ("kind", "base"), [(DriverError, RuntimeError), (HostSyncWarning, RuntimeWarning)]
)
def test_the_exceptions_are_what_they_derive_from(kind, base):
    assert issubclass(kind, base)
    assert kind.__module__ == "cai_bridge"
    assert inspect.getdoc(kind)


def test_the_protocols_accept_what_the_functions_take(cuda):
    x = cuda.array([1.0], speaks=("dlpack", "cai"))
    pair = DLPackPair(None)
    accepted = {
        SupportsDLPack: [x, from_cai(x), pair],
        SupportsCudaArrayInterface: [x, to_cai(x), only_cai(x)],
        SupportsCudaStream: [cuda.stream(), StreamObject((0, 1))],
    }
    refused = {
        SupportsDLPack: [OnlyDLPack(None), to_cai(x), only_cai(x), object(), 1],
        SupportsCudaArrayInterface: [from_cai(x), pair, {}],
        SupportsCudaStream: [1, None, x],
    }
    for protocol, objects in accepted.items():
        assert all(isinstance(made, protocol) for made in objects)
    for protocol, objects in refused.items():
        assert not any(isinstance(made, protocol) for made in objects)


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("call", [to_cai, from_cai])
def test_a_view_is_not_copied_or_pickled(call, take, cuda):
    view = call(only_cai(cuda.array(shape=4)))
    with pytest.raises(TypeError, match=f"cannot pickle a {type(view).__name__}: it refers to mem"):
        take(view)


@pytest.mark.parametrize(
    ("made", "call", "stream", "shown"),
    [
        ({"shape": 3}, to_cai, -1, "CaiView float32 (3,) at {ptr} on cuda:0, nothing pending"),
        ({"shape": ()}, to_cai, None, "float32 () at {ptr} on cuda:0, ready on the legacy"),
        ({"shape": (2, 3), "dtype": "bfloat16"}, to_cai, 2, "bfloat16 (2, 3) at {ptr} on cuda:0"),
        ({"shape": 3}, to_cai, 2, "ready on the per-thread default stream (2)>"),
        ({"shape": 3, "device": 1}, to_cai, -1, "on cuda:1, nothing pending>"),
        ({"shape": 3, "memory": "pinned"}, to_cai, -1, "on pinned host memory, nothing pending>"),
        ({"shape": 3, "memory": "managed"}, to_cai, -1, "on managed memory, nothing pending>"),
        ({"shape": 3, "readonly": True}, to_cai, -1, "nothing pending, read-only>"),
        ({"shape": (2, 3), "strides": "F"}, to_cai, -1, "(2, 3) strides=(4, 8) at {ptr}"),
        ({"shape": 3}, from_cai, 77, "<DLPackView float32 (3,) at {ptr} on cuda:0, ready on str"),
        ({"shape": (0, 3)}, from_cai, 77, "(0, 3) at 0x0 on cuda:0, nothing pending>"),
    ],
)
def test_a_repr_says_what_where_and_when(made, call, stream, shown, cuda):
    x = cuda.array(speaks="dlpack" if call is to_cai else "cai", **made)
    own = cuda.stream()
    text = repr(call(x, stream=own if stream == 77 else stream))
    assert shown.format(ptr=hex(x.ptr)) in text
    assert re.fullmatch(r"<(CaiView|DLPackView) \w+ \([\d, ]*\).* at 0x[0-9a-f]+ on .+>", text)


@pytest.mark.parametrize("name", ["to_cai", "from_cai", "to_dlpack", "convert", "register"])
@pytest.mark.usefixtures(no_libraries.__name__)
def test_the_example_of_a_function_holds(name):
    function = getattr(cai_bridge, name)
    example = doctest.DocTestParser().get_doctest(function.__doc__, {}, name, None, None)
    failed, tried = doctest.DocTestRunner(verbose=False).run(example)
    assert (failed, tried > 0) == (0, True)


@pytest.mark.parametrize("name", ["_share.sender", "_trace", "testing._cuda"])
def test_the_examples_of_a_module_hold(name):
    failed, tried = doctest.testmod(importlib.import_module(f"cai_bridge.{name}"))
    assert (failed, tried > 0) == (0, True)
