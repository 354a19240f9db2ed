"""`make dev`: a debug build of the extension, put where this virtual environment imports it from.

The environment gets a link to `python/` instead of an installed wheel: a `.pth` file, and the
metadata that the pytest plugin and the command are found by. A wheel takes its place again with
`make test`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "python"
SITE = Path(sysconfig.get_path("purelib"))
# A free-threaded interpreter has no stable ABI.
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
SUFFIX = SUFFIX if sysconfig.get_config_var("Py_GIL_DISABLED") else ".abi3.so"
EXTENSION = SOURCE / "cai_bridge" / f"_core{SUFFIX}"


def build() -> None:
    """Build the extension, and rename it into the package: a running test keeps its own."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    env = {**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1", "PYO3_PYTHON": sys.executable}
    command = ["cargo", "rustc", "--quiet", "--lib", "--crate-type", "cdylib"]
    command += ["--features", "wheel"]
    subprocess.run(command, cwd=ROOT, env=env, check=True)
    beside = EXTENSION.with_suffix(".so.new")
    shutil.copy2(target / "debug" / "libcai_bridge.so", beside)
    beside.replace(EXTENSION)


def link() -> None:
    """Have this environment import `python/`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    scripts = "".join(f"{name} = {where}\n" for name, where in project["scripts"].items())
    plugins = "".join(
        f"{name} = {where}\n" for name, where in project["entry-points"]["pytest11"].items()
    )
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n",
        "INSTALLER": "make dev\n",
        "entry_points.txt": f"[console_scripts]\n{scripts}\n[pytest11]\n{plugins}",
    }
    info = SITE / f"cai_bridge-{version}.dist-info"
    command = Path(sysconfig.get_path("scripts")) / "cai-bridge"
    pip = [sys.executable, "-m", "pip", "--quiet", "uninstall", "--yes", project["name"]]
    if any(SITE.glob("cai_bridge-*.dist-info")) and not (SITE / "cai_bridge.pth").exists():
        subprocess.run(pip, check=True)
    for old in SITE.glob("cai_bridge-*.dist-info"):
        shutil.rmtree(old)
    info.mkdir()
    for name, text in files.items():
        (info / name).write_text(text)
    (SITE / "cai_bridge.pth").write_text(f"{SOURCE}\n")
    module, _, function = project["scripts"]["cai-bridge"].partition(":")
    command.write_text(
        f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    )
    command.chmod(0o755)
    # What pip removes when a wheel is installed again.
    records = [*(f"{info.name}/{name}" for name in files), f"{info.name}/RECORD", "cai_bridge.pth"]
    records.append(os.path.relpath(command, SITE))
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in records))


def check() -> None:
    """Refuse to go on if another copy of the package would be tested."""
    ask = "import cai_bridge, cai_bridge._core as core; print(core.__file__)"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", ask], cwd=SITE.parent, env=env, check=True, capture_output=True
    ).stdout.decode()
    if Path(found.strip()).resolve() != EXTENSION.resolve():
        raise SystemExit(f"import cai_bridge: got {found.strip()}; allowed: {EXTENSION}")


if __name__ == "__main__":
    if sys.prefix == sys.base_prefix:
        raise SystemExit("make/dev.py: got no virtual environment; run `make dev`")
    build()
    link()
    check()
