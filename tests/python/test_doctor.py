"""The command's doctor: what it finds, and what it says of it."""

import json
from importlib import metadata

import pytest

from cai_bridge import __version__
from cai_bridge._cli import doctor, libraries, machine
from cai_bridge._cli.advice import ADVICE, LEVELS, Advice, Surroundings, advice_for
from cai_bridge._cli.command import main
from cai_bridge._cli.libraries import INSTALLABLE, Doors, Found, doors_by_table, version_of
from cai_bridge._cli.machine import Driver

GPU = Driver("13.0", ("NVIDIA H200",))
NONE = Driver(missing="no driver")
NUMPY = "numpy 2.4.6, ml_dtypes 0.6.0"
CUPY = "CUPY_CUDA_ARRAY_INTERFACE_SYNC=0 CUPY_CUDA_ARRAY_INTERFACE_EXPORT_VERSION=2"
TORCH = "torch-cai torch-malformed memory-given-back"


@pytest.mark.parametrize(
    ("versions", "environment", "driver", "said"),
    [
        (NUMPY, "", GPU, ""),
        (NUMPY, "", NONE, "no-device"),
        ("", "", GPU, "no-numpy"),
        ("numpy 2.4.6", "", GPU, "no-ml-dtypes"),
        (NUMPY, "CAI_BRIDGE_SYNC=0", GPU, "bridge-sync-off"),
        (NUMPY, "CAI_BRIDGE_SYNC=1", GPU, ""),
        (NUMPY, "NUMBA_CUDA_ARRAY_INTERFACE_SYNC=0", GPU, ""),
        (f"{NUMPY}, torch 2.11.0", "", GPU, TORCH),
        (f"{NUMPY}, torch 2.9.1", "", GPU, f"{TORCH} torch-no-table"),
        (f"{NUMPY}, jax 0.11.2", "", GPU, "jax-cai jax-immutable"),
        (f"{NUMPY}, warp 1.19.0", "", GPU, "warp-cai"),
        (f"{NUMPY}, rmm 26.10.0", "", GPU, "memory-given-back rmm-waits"),
        (
            *(f"{NUMPY}, numba 0.30.4", "NUMBA_CUDA_ARRAY_INTERFACE_SYNC=0", GPU),
            "numba-sync-off numba-waits",
        ),
        ("numpy 2.5.2, ml_dtypes 0.6.0, numba 0.30.4", "", GPU, "numba-waits numba-numpy"),
        (
            *(f"{NUMPY}, cupy 14.2.0", CUPY, GPU),
            "cupy-sync-off cupy-export-2 memory-given-back cupy-waits",
        ),
    ],
)
def test_advice_is_what_applies_gravest_first(versions, environment, driver, said):
    installed = dict(one.split() for one in versions.split(", ") if one)
    found = {name: Found(name, name, version) for name, version in installed.items()}
    settings = dict(one.split("=") for one in environment.split())
    advice = advice_for(Surroundings(found, settings, driver))
    assert [one.name for one in advice] == said.split()
    levels = [list(LEVELS).index(one.level) for one in advice]
    assert levels == sorted(levels)


def test_every_advice_says_what_happens_what_to_do_and_where_it_is_written():
    assert len({one.name for one in ADVICE}) == len(ADVICE)
    for one in ADVICE:
        assert all((one.what, one.action, one.source)), one.name


def test_the_doctor_finds_what_is_installed(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"cai_bridge {__version__}\nCPython ")
    assert f"numpy {metadata.version('numpy')}" in printed
    assert "tvm-ffi" in printed


def test_the_doctors_json_has_it_all(capsys):
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["cai_bridge", "python", "driver", "libraries", "advice", "ok"]
    numpy = next(one for one in told["libraries"] if one["name"] == "numpy")
    assert numpy["version"] == metadata.version("numpy")
    assert numpy["doors"] == {"exchange": False, "dlpack": True, "cai": None, "stream": False}
    assert set(told["driver"]) == {"version", "devices", "missing"}


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_setting_that_is_unsafe_ends_with_1(flags, capsys, monkeypatch):
    monkeypatch.setenv("CAI_BRIDGE_SYNC", "0")
    assert main(["doctor", *flags]) == 1
    assert "CAI_BRIDGE_SYNC=0" in capsys.readouterr().out


def test_the_table_says_of_these_versions_what_their_types_say():
    by_table = {one.name: one.doors for one in libraries.find_libraries()}
    asked = [one for one in libraries.find_libraries(imported=True) if one.seen]
    assert {"numpy", "tvm-ffi"} <= {one.name for one in asked}
    for one in asked:
        assert one.doors == by_table[one.name], one.name


def test_the_table_knows_the_version_before_and_after():
    torch = next(one for one in INSTALLABLE if one.name == "torch")
    assert doors_by_table(torch, "1.9.0") is None
    assert doors_by_table(torch, "2.9.1+cu130") == Doors(dlpack=True, cai=2)
    assert doors_by_table(torch, "2.10.0a0") == Doors(exchange=True, dlpack=True, cai=2)
    assert [version_of(text) for text in ("0.1.15.post2", "3", "", "dev")] == [
        *((0, 1, 15), (3,), (), ())
    ]


ANSWERS = {
    "cuDriverGetVersion": lambda version: setattr(version._obj, "value", 13020),
    "cuDeviceGetCount": lambda count: setattr(count._obj, "value", 2),
    "cuDeviceGet": lambda device, ordinal: setattr(device._obj, "value", ordinal),
    "cuDeviceGetName": lambda name, _, device: setattr(
        name, "value", f"GPU {device.value}".encode()
    ),
    "cuGetErrorName": lambda _, name: setattr(name._obj, "value", b"CUDA_ERROR_NO_DEVICE"),
}


class FakeDriver:
    """Two devices; calls that write what they are asked for."""

    def __init__(self, failing):
        self.failing = failing

    def __getattr__(self, call):
        def made(*arguments):
            if call == self.failing:
                return 100
            ANSWERS.get(call, lambda *_: None)(*arguments)
            return 0

        return made


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ("", "GPU 0 + GPU 1, driver for CUDA 13.2"),
        ("cuInit", "no CUDA device: cuInit returned 100 (CUDA_ERROR_NO_DEVICE)"),
        ("cuDeviceGetName", "no CUDA device: cuDeviceGetName returned 100 (CUDA_ERROR_NO_DEVICE)"),
    ],
)
def test_the_doctor_asks_the_driver(failing, said, monkeypatch):
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: FakeDriver(failing))
    assert machine.find_driver().name == said


@pytest.mark.parametrize(
    ("module", "told"), [("not_there", "ModuleNotFoundError"), ("leaves", "SystemExit: 0")]
)
def test_a_library_that_does_not_import_is_told_of(module, told, tmp_path, monkeypatch, capsys):
    (tmp_path / "leaves.py").write_text("import sys\nprint('hello')\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    broken = libraries.Known("broken", ("numpy",), f"{module}:Array")
    monkeypatch.setattr(libraries, "INSTALLABLE", (broken,))
    assert main(["doctor", "--import"]) == 0
    shown = capsys.readouterr().out
    assert "hello" not in shown
    assert f"does not import: {told}" in shown
    # Unasked it imports nothing.
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "--import looks at its array type" in shown
    assert "does not import" not in shown


def test_without_libraries_the_doctor_says_so(monkeypatch):
    monkeypatch.setattr(libraries, "INSTALLABLE", ())
    assert "No array library is installed." in str(doctor.examine())


def findings(*advice):
    known = (Found("torch", "torch", "2.11.0", Doors(dlpack=True, cai=2)),)
    return doctor.Findings(machine.this_interpreter(), GPU, known, advice)


def advised(name, level, action="Do it."):
    return Advice(name, level, lambda surroundings: True, f"This is {name}.", action, "a text")


def test_the_doctor_tells_each_advice_under_its_level():
    text = str(findings(advised("first", "unsafe"), advised("second", "slow")))
    _, told = text.split("torch", 1)
    assert [line for line in told.splitlines() if line][1:] == [
        *("unsafe: a setting makes values wrong", "  - This is first.", "    -> Do it."),
        "slow: the host waits, or a conversion takes longer than needed",
        *("  - This is second.", "    -> Do it."),
    ]


def test_the_doctor_tells_what_a_library_speaks():
    (row,) = [line for line in str(findings()).splitlines() if line.startswith("torch")]
    assert row == "torch  torch 2.11.0  __dlpack__; CAI v2, no stream"


@pytest.mark.parametrize("before", range(60, 90, 3))
def test_what_is_to_be_typed_is_not_broken_at_its_hyphens(before):
    action = "x" * before + " pip-install-of-a-name --with-an-option"
    lines = str(findings(advised("it", "slow", action))).splitlines()
    assert {"pip-install-of-a-name", "--with-an-option"} <= {
        w for one in lines for w in one.split()
    }
