"""Write what is generated in this repository: pages, pictures, the stub's docstrings, licenses.

    python docs/generate.py [NAME ...]          writes the files of these, or of all
    python docs/generate.py [NAME ...] --check  exits with 1 if that would change one

From new data:

    python docs/generate.py matrix FILE ...               what `cai-bridge matrix --json` wrote
    python docs/generate.py speed FILE                    what `tests/bench/bench.py --json` wrote
    python docs/generate.py races FILE ...                what `tests.gpu.race_tools` wrote
    python docs/generate.py specification run             runs the tests that the page lists
    python docs/generate.py public-api FILE               what `make public-api` has of rustdoc
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from generating import ROOT

# Each is a module in the folder generating. Its `files` returns paths with their contents.
NAMES = (
    *("libraries", "dtypes", "pages", "stub", "licenses", "contract", "specification"),
    *("matrix", "speed", "races", "modules", "scenes", "trace", "public-api"),
)
TAKING = ("matrix", "speed", "races", "specification", "public-api")


def files(name: str) -> dict[Path, str]:
    """List the files of a generator with their contents."""
    module = importlib.import_module(f"generating.{name.replace('-', '_')}")
    made: dict[Path, str] = module.files()
    return made


def main() -> None:
    """Write the files, or check them."""
    asked = [one for one in sys.argv[1:] if one != "--check"]
    if asked and asked[0] in TAKING and set(asked[1:]) - set(NAMES):
        importlib.import_module(f"generating.{asked[0].replace('-', '_')}").update(*asked[1:])
        asked = asked[:1]
    if unknown := set(asked) - set(NAMES):
        sys.exit(f"got {', '.join(sorted(unknown))}; allowed: {', '.join(NAMES)}\n\n{__doc__}")
    for name in asked or NAMES:
        for path, text in files(name).items():
            if path.exists() and path.read_text(encoding="utf-8") == text:
                continue
            if "--check" in sys.argv:
                where = path.relative_to(ROOT)
                sys.exit(f"{where}: is old; run python docs/generate.py {name}")
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
