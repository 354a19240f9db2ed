"""The profile that shapes the release build: which code runs often, and which never does.

    python make/pgo.py flags TARGET                     the flags for rustc
    python make/pgo.py release TARGET                   the same: another compiler is an error,
                                                        and rustc says what the profile lacks
    python make/pgo.py compiler                         the version of Rust that the profile is of
    python make/pgo.py train LIBRARIES PACKAGE TARGET   take the profile anew
    python make/pgo.py missing FILE [MOST]              whether the profile is old

A profile knows functions by names that the compiler's version, the target and the crate's version
are part of. With another compiler or target there are no flags, and the build is a plain one; a new
version of the crate needs a new profile. `missing` reads what rustc said of a build, and
exits with 1 where the profile lacks too many of its functions, or knows them as they were.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "make" / "pgo"
PROFILE, ABOUT = KEPT / "profile.xz", KEPT / "about.json"
UNPACKED = ROOT / "target" / "cai_bridge.profdata"
# What is trained with, and how often each run counts.
RUNS = {"rows": 100, "soak": 1, "strangers": 1}
# Over a real driver nobody runs the simulated one.
NOT_TRAINED = "simulated"
# Blocks that never run leave their functions, and a view is moved without calls of memcpy.
LAID_OUT = ("-Cllvm-args=-enable-split-machine-functions", "-Cllvm-args=-max-store-memcpy=24")
TELLING = "-Cllvm-args=-pgo-warn-missing-function"
# Where a larger share is unknown, the profile is old.
MOST = 0.05
UNKNOWN = re.compile(
    r"(no profile data available for function|hash mismatch\)) (\S+) .* up to (\d+) count"
)


def said(*command: str | Path) -> str:
    """Run a command, and give what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def unpacked() -> bytes:
    """Give the profile as rustc reads it."""
    return lzma.decompress(PROFILE.read_bytes())


def compiler() -> str:
    """Give the version of Rust that the profile is of."""
    version: str = json.loads(ABOUT.read_text())["rustc"].split()[1]
    return version


def flags(target: str, *, released: bool = False) -> str:
    """Unpack the profile, and give the flags that use it."""
    about, own = json.loads(ABOUT.read_text()), {"rustc": said("rustc", "-V"), "target": target}
    if other := [f"{about[name]}, not {what}" for name, what in own.items() if about[name] != what]:
        print("built without the profile, which is of", *other, file=sys.stderr)
        if released and about["target"] == target:
            sys.exit(f"allowed: Rust {compiler()}, or PGO=0, which builds without it on purpose")
        return ""
    profile = unpacked()
    # A file that is the same keeps its time, and nothing is built anew.
    if not UNPACKED.exists() or UNPACKED.read_bytes() != profile:
        UNPACKED.parent.mkdir(exist_ok=True)
        beside = UNPACKED.with_suffix(f".{os.getpid()}")
        beside.write_bytes(profile)
        beside.replace(UNPACKED)
    return " ".join([f"-Cprofile-use={UNPACKED}", *LAID_OUT])


def train(libraries: Path, package: Path, target: str) -> None:
    """Run what is trained with, and keep the profile."""
    tool = Path(said("rustc", "--print", "target-libdir")).parent / "bin" / "llvm-profdata"
    if not tool.exists():
        sys.exit("llvm-profdata is missing: rustup component add llvm-tools")
    env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{libraries}:{package}"}
    with tempfile.TemporaryDirectory() as name:
        folder, parts = Path(name), []
        for run, weight in RUNS.items():
            raw, part = folder / f"{run}.profraw", folder / run
            driver = {"LD_LIBRARY_PATH": str(libraries)} if run == "rows" else {}
            command = [sys.executable, "-m", "tests.counts.training", run]
            here = {**env, **driver, "LLVM_PROFILE_FILE": str(raw)}
            subprocess.run(command, cwd=ROOT, env=here, check=True)
            without = [] if driver else [f"--no-function={NOT_TRAINED}"]
            said(tool, "merge", *without, "--output", part, raw)
            parts.append(f"--weighted-input={weight},{part}")
        merged = folder / "merged"
        said(tool, "merge", *parts, "--output", merged)
        shown = said(tool, "show", merged, "--detailed-summary")
        profile = merged.read_bytes()
    about: dict[str, str | int] = {"rustc": said("rustc", "-V"), "target": target}
    for what, words in {"functions": "Total functions", "counts": "Total count"}.items():
        about[what] = int(re.search(rf"{words}: (\d+)", shown)[1])
    KEPT.mkdir(exist_ok=True)
    PROFILE.write_bytes(lzma.compress(profile, preset=9 | lzma.PRESET_EXTREME))
    ABOUT.write_text(json.dumps(about, indent=1) + "\n")


def missing(text: str, most: float = MOST) -> list[str]:
    """List what the profile does not know of a build, where that is much of it."""
    about = json.loads(ABOUT.read_text())
    unknown = {name: int(count) for _, name, count in UNKNOWN.findall(text)}
    shares = {
        "functions": len(unknown) / about["functions"],
        "counts": sum(unknown.values()) / about["counts"],
    }
    print(
        "not in the profile:", ", ".join(f"{share:.1%} of {what}" for what, share in shares.items())
    )
    return [f"the profile is old: {what}" for what, share in shares.items() if share > most]


def main() -> None:
    """Do what is asked."""
    match sys.argv[1:]:
        case ["flags", target]:
            print(flags(target))
        case ["release", target]:
            used = flags(target, released=True)
            print(used and f"{used} {TELLING}")
        case ["compiler"]:
            print(compiler())
        case ["train", libraries, package, target]:
            train(Path(libraries).resolve(), Path(package).resolve(), target)
        case ["missing", file, *most]:
            sys.exit("\n".join(missing(Path(file).read_text(), *map(float, most))) or 0)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
