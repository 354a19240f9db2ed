"""`make link`: builds the crate of each row of the table, and says which failed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = ROOT / "target" / "link"
NVCC = """#!/bin/sh
echo "nvcc: NVIDIA (R) Cuda compiler driver"
echo "Copyright"
echo "Built on a day"
echo "Cuda compilation tools, release {version}, V{version}.0"
"""


def manifest(row: dict) -> str:
    """The crate's Cargo.toml."""
    bridge = {"path": str(ROOT), "features": row.get("bridge", [])}
    dependencies = {"cai_bridge": bridge}
    if "cudarc" in row:
        features = ["std", "driver", *row["cudarc"]]
        version = row.get("version", "0.19")
        dependencies["cudarc"] = {"version": version, "default-features": False} | {
            "features": features
        }
    if row.get("python"):
        dependencies["pyo3"] = {"version": "0.30"}
    lines = ["[workspace]", "[package]", 'name = "outside"', 'edition = "2024"']
    for name, wanted in dependencies.items():
        lines.append(f"[dependencies.{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in wanted.items()]
    return "\n".join(lines) + "\n"


def build(row: dict) -> tuple[bool, str]:
    """Whether the row's crate builds, and what cargo said."""
    crate = TARGET / "crates" / re.sub(r"\W+", "-", row["name"])
    (crate / "src").mkdir(parents=True, exist_ok=True)
    (crate / "Cargo.toml").write_text(manifest(row))
    shutil.copy(ROOT / "Cargo.lock", crate / "Cargo.lock")
    shutil.copy(HERE / row["program"], crate / "src" / "main.rs")
    env = {**os.environ, "PYO3_PYTHON": sys.executable, **row.get("environment", {})}
    if "nvcc" in row:
        tools = crate / "bin"
        tools.mkdir(exist_ok=True)
        (tools / "nvcc").write_text(NVCC.format(version=row["nvcc"]))
        (tools / "nvcc").chmod(0o755)
        env["PATH"] = f"{tools}{os.pathsep}{env['PATH']}"
    command = ["cargo", "check", "--quiet", "--target-dir", str(TARGET)]
    done = subprocess.run(command, cwd=crate, env=env, capture_output=True, text=True, check=False)
    if "crates" in row and not done.returncode:
        tree = ["cargo", "tree", "--edges", "normal,build", "--prefix", "none"]
        told = subprocess.run(tree, cwd=crate, env=env, capture_output=True, text=True, check=True)
        crates = {line.split()[0] for line in told.stdout.splitlines()}
        if len(crates) > row["crates"]:
            return False, f"got {len(crates)} crates; allowed: {row['crates']}: {sorted(crates)}"
    return done.returncode == 0, done.stderr


def library_kinds() -> list[str]:
    """What a crate that depends on this one builds of it."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = json.loads(told)["packages"][0]["targets"]
    return [kind for target in targets if target["name"] == "cai_bridge" for kind in target["kind"]]


def main() -> int:
    """Build every row."""
    failed = 0
    for row in tomllib.loads((HERE / "table.toml").read_text())["row"]:
        built, said = build(row)
        right = (row["fails"] in said and not built) if "fails" in row else built
        print(f"{'ok' if right else 'FAILED':7}{row['name']}", flush=True)
        if not right:
            failed += 1
            print(said if not built else f"       it builds; allowed: {row['fails']}", flush=True)
    kinds = library_kinds()
    if kinds != ["lib"]:
        failed += 1
        print(f"FAILED a crate that depends on this one builds {kinds}; allowed: ['lib']")
    return failed != 0


if __name__ == "__main__":
    raise SystemExit(main())
