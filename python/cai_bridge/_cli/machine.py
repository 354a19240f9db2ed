"""The machine that the command runs on: the driver, its devices, the interpreter."""

from __future__ import annotations

import ctypes
import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any

LIBRARY = "libcuda.so.1"


@dataclass(frozen=True)
class Driver:
    """The CUDA driver, or the reason why there is none."""

    version: str = ""
    """The CUDA version that it supports, such as ``"13.0"``; empty without a driver."""
    devices: tuple[str, ...] = ()
    """The devices' names, by ordinal."""
    missing: str = ""
    """Why there is no driver, or no device; empty if there is one."""

    @property
    def name(self) -> str:
        """The driver and its devices on one line, or what is missing."""
        if self.missing:
            return f"no CUDA device: {self.missing}"
        return f"{' + '.join(self.devices)}, driver for CUDA {self.version}"


class _CallError(Exception):
    pass


class _Library:
    """Driver calls that raise if their result is an error."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def __call__(self, call: str, *arguments: Any) -> None:
        code = getattr(self._library, call)(*arguments)
        if code:
            raise _CallError(f"{call} returned {code}{self._named(code)}")

    def _named(self, code: int) -> str:
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        return f" ({name.value.decode()})" if name.value else ""


def find_driver() -> Driver:
    """Ask the driver for its version and devices, without making a context."""
    try:
        call = _Library()
    except OSError as error:
        return Driver(missing=str(error))
    number = ctypes.c_int()
    try:
        call("cuDriverGetVersion", ctypes.byref(number))
        version = f"{number.value // 1000}.{number.value % 1000 // 10}"
        call("cuInit", 0)
        call("cuDeviceGetCount", ctypes.byref(number))
        devices = tuple(_device_name(call, ordinal) for ordinal in range(number.value))
    except (_CallError, AttributeError) as error:
        return Driver(missing=str(error))
    return Driver(version, devices, "" if devices else "the driver has no device")


def _device_name(call: _Library, ordinal: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call("cuDeviceGetName", name, len(name), device)
    return name.value.decode(errors="replace")


@dataclass(frozen=True)
class Interpreter:
    """The Python that runs the command."""

    version: str
    implementation: str
    free_threaded: bool
    platform: str

    def __str__(self) -> str:
        kind = ", free-threaded" if self.free_threaded else ""
        return f"{self.implementation} {self.version}{kind} on {self.platform}"

    def to_dict(self) -> dict[str, Any]:
        """Return the interpreter as data for JSON."""
        return asdict(self)


def this_interpreter() -> Interpreter:
    """Describe the Python that runs this."""
    free_threaded = not getattr(sys, "_is_gil_enabled", lambda: True)()
    return Interpreter(
        platform.python_version(), platform.python_implementation(), free_threaded, _system()
    )


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"
