"""tvm-ffi, whose tensors compute nothing: the driver works on them, on the default stream."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import tvm_ffi

from ....gpu import driver as gpu
from .. import adapters


class Adapter(adapters.Adapter):
    """Tensors over the memory of others, on the stream that tvm-ffi's environment has by itself."""

    name = "tvm_ffi"

    def start(self) -> None:
        super().start()
        self.free: dict[int, list[int]] = {}

    def fill(self, array: Any, words: int, value: int, stream: Any, spin: float) -> None:
        self.spin(None, spin)
        (bits,) = struct.unpack("I", struct.pack("f", value))
        with self.driver.context():
            self.driver.write(int(array.data_ptr()), bits, words, gpu.LEGACY)

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        with self.driver.context():
            try:
                target = self.free[words].pop()
            except (KeyError, IndexError):
                target = self.driver.allocate(4 * words)
            self.spin(None, spin)
            self.driver.copy(target, int(array.data_ptr()), 4 * words, gpu.LEGACY)
        return target, words

    def values(self, copied: Any) -> Any:
        target, words = copied
        values = np.frombuffer(self.driver.read(target, 4 * words), np.float32)
        self.free.setdefault(words, []).append(target)
        return values

    def pointer(self, array: Any) -> int | None:
        return int(array.data_ptr())

    def take(self, how: str, source: Any, stream: Any) -> Any:
        return tvm_ffi.from_dlpack(source)

    def warm_up(self, words: int, kinds: dict[str, str]) -> None:
        with self.driver.context():
            self.free[words] = [self.driver.allocate(4 * words) for _ in range(4)]
        self.spin(None, 0.01)
        self.synchronize()
