"""Whether a wheel or sdist has what it must, and nothing of the machine that built it.

    python make/check_wheel.py [--published] FILE ...

`--published` also asks for a tag that an index takes.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HAS = (
    r"cai_bridge/_core\..*so",
    r"cai_bridge/_core\.pyi",
    r"cai_bridge/_perturb\.so",
    r"cai_bridge/py\.typed",
    r"cai_bridge/include/cai_bridge\.h",
    r"pytest_cai_bridge\.py",
    r".*\.dist-info/licenses/LICENSE-MIT",
    r".*\.dist-info/licenses/LICENSE-APACHE",
    r".*\.dist-info/licenses/THIRD-PARTY-LICENSES",
    r".*\.dist-info/sboms/.*\.json",
)

# What an sdist has: what it is built of, and nothing that lies beside it.
SOURCES = re.compile(
    r"(src|perturb/src|python)/.+|(perturb/)?Cargo\.(toml|lock)|make/backend\.py|docs/sbom\.cdx\.json"
    r"|(PKG-INFO|pyproject\.toml|(perturb/)?build\.rs|(README|CHANGELOG)\.md|(THIRD-PARTY-)?LICENSE[-A-Z]*)"
)
NEEDED = (
    "make/backend.py",
    "perturb/build.rs",
    "perturb/Cargo.lock",
    "LICENSE-MIT",
    "THIRD-PARTY-LICENSES",
)

# Every process of a perturbed program loads it.
PRELOADED = 350_000


def complaints(wheel: Path, *, published: bool) -> list[str]:
    """List what is wrong with a wheel."""
    found = []
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        for pattern in HAS:
            if len([name for name in names if re.fullmatch(pattern, name)]) != 1:
                found.append(f"got not one file {pattern}")
        found += [
            f"{one.filename}: got {one.file_size} bytes; allowed: {PRELOADED}"
            for one in files.infolist()
            if one.filename.endswith("_perturb.so") and one.file_size > PRELOADED
        ]
        folders = {str(ROOT), str(Path.home()), os.environ.get("CARGO_HOME") or str(ROOT)}
        for name in names:
            text = files.read(name)
            found += [
                f"{name}: got the path {one}" for one in folders if f"{one}/".encode() in text
            ]
    if published and "manylinux" not in wheel.name:
        found.append("got no manylinux tag")
    return [f"{wheel.name}: {one}" for one in found]


def of_sources(sdist: Path) -> list[str]:
    """List what is wrong with an sdist."""
    with tarfile.open(sdist) as files:
        names = [one.name.partition("/")[2] for one in files if one.isfile()]
    found = [f"got no {name}" for name in NEEDED if name not in names]
    found += [
        f"got {name}"
        for name in names
        if not SOURCES.fullmatch(name) or name.endswith((".so", ".pyc"))
    ]
    return [f"{sdist.name}: {one}" for one in found]


def main() -> None:
    """Check wheels and sdists."""
    published = "--published" in sys.argv
    found = []
    for one in [Path(one) for one in sys.argv[1:] if not one.startswith("--")]:
        is_wheel = one.suffix == ".whl"
        found += complaints(one, published=published) if is_wheel else of_sources(one)
    sys.exit("\n".join(found) or 0)


if __name__ == "__main__":
    main()
