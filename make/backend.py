"""The build backend: maturin, after the library that `cai-bridge perturb` preloads.

That library is a crate of its own, which maturin does not build, and `pip install .` needs it, too.
`python make/backend.py` builds it alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OTHERS = ("CARGO_BUILD_TARGET", "CARGO_PROFILE_")
SHAPING = ("-Cprofile-use", "-Cllvm-args")
NO_CARGO = (
    "cai_bridge: got no `cargo` on PATH; building it needs Rust 1.88 or later. Install Rust from"
    " https://rustup.rs, or install a wheel that `make wheel` made on another machine."
)
LIBRARY = ROOT / "python" / "cai_bridge" / "_perturb.so"


def perturb() -> None:
    """Build the library, and rename it into the package: a running program keeps its own."""
    if shutil.which("cargo") is None:
        sys.exit(NO_CARGO)
    target = ROOT / "target" / "perturb"
    command = ["cargo", "build", "--quiet", "--release", "--locked"]
    command += ["--manifest-path", str(ROOT / "perturb" / "Cargo.toml")]
    # Into a folder that is named here, and with its own profile: without optimization over crates
    # it lacks a symbol of unwinding. What is set for the extension is not for this library.
    environment = {name: text for name, text in os.environ.items() if not name.startswith(OTHERS)}
    if flags := environment.get("RUSTFLAGS"):
        kept = [one for one in flags.split() if not one.startswith(SHAPING)]
        environment["RUSTFLAGS"] = " ".join(kept)
    subprocess.run([*command, "--target-dir", str(target)], check=True, env=environment)
    beside = LIBRARY.with_suffix(".so.new")
    shutil.copy2(target / "release" / "libcai_bridge_perturb.so", beside)
    beside.replace(LIBRARY)


def __getattr__(name: str) -> Any:
    """Hand everything else on to maturin."""
    import maturin

    return getattr(maturin, name)


def build_wheel(*arguments: Any, **named: Any) -> str:
    """Build a wheel, as PEP 517 says."""
    import maturin

    perturb()
    made: str = maturin.build_wheel(*arguments, **named)
    return made


if __name__ == "__main__":
    perturb()
