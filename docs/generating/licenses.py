"""The crates in the wheel's binary, and their licenses.

The crates are all that Cargo links for the wheel, on any platform that has a wheel. Crates for
builds or tests alone are left out. The license texts come from the crates' sources.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from generating import ROOT, toml

TEXTS = ROOT / "THIRD-PARTY-LICENSES"
SBOM = ROOT / "docs" / "sbom.cdx.json"
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
LICENSE = re.compile(r"(?i)^(licen[cs]e|copying|copyright|notice|unlicense)")
HEAD = """\
The compiled module of cai_bridge contains the crates below, and Rust's standard library, which is
licensed under MIT or Apache-2.0 by The Rust Project Contributors. docs/generate.py writes this
file.
"""


def linked() -> list[dict[str, Any]]:
    """List the packages that the wheel's module links."""
    maturin = toml(ROOT / "pyproject.toml")["tool"]["maturin"]
    found: dict[str, dict[str, Any]] = {}
    for platform in PLATFORMS:
        command = ["cargo", "metadata", "--format-version=1", "--locked"]
        command += ["--filter-platform", platform]
        if maturin.get("features"):
            command += ["--features", ",".join(maturin["features"])]
        told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        tree = json.loads(told)
        packages = {one["id"]: one for one in tree["packages"]}
        nodes = {one["id"]: one for one in tree["resolve"]["nodes"]}
        left, root = [tree["resolve"]["root"]], tree["resolve"]["root"]
        while left:
            node = nodes[left.pop()]
            for dep in node["deps"]:
                package = packages[dep["pkg"]]
                kinds = {one["kind"] for one in dep["dep_kinds"]}
                is_macro = any("proc-macro" in one["kind"] for one in package["targets"])
                if None in kinds and not is_macro and dep["pkg"] not in found:
                    found[dep["pkg"]] = package
                    left.append(dep["pkg"])
        found.pop(root, None)
    return sorted(found.values(), key=lambda one: (one["name"], one["version"]))


def texts(packages: list[dict[str, Any]]) -> str:
    """Write each license text once, with the crates that have it."""
    by_text: dict[str, list[str]] = {}
    for one in packages:
        name = f"{one['name']} {one['version']} ({one['license']})"
        folder = Path(one["manifest_path"]).parent
        files = sorted(path for path in folder.iterdir() if LICENSE.match(path.name))
        if not files:
            sys.stderr.write(f"{name}: has no license file; its own statement stands alone\n")
        for path in files or [None]:
            text = path.read_text(errors="replace").strip() if path else "(no text in the crate)"
            by_text.setdefault(text, []).append(name)
    line = "=" * 80
    parts = [HEAD]
    parts += ["\n".join([line, *names, line, "", text, ""]) for text, names in by_text.items()]
    return "\n".join(parts)


def sbom(packages: list[dict[str, Any]]) -> str:
    """List the crates in CycloneDX's format (1.5), without a time or a path."""
    lock = toml(ROOT / "Cargo.lock")["package"]
    sums = {(one["name"], one["version"]): one.get("checksum") for one in lock}
    components = []
    for one in packages:
        name, version = one["name"], one["version"]
        purl = f"pkg:cargo/{name}@{version}"
        component: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name}
        component |= {"version": version, "purl": purl}
        component["licenses"] = [{"expression": (one["license"] or "").replace("/", " OR ")}]
        if checksum := sums.get((name, version)):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1}
    return json.dumps({**head, "components": components}, indent=1) + "\n"


def files() -> dict[Path, str]:
    """List the texts and the bill of materials."""
    packages = linked()
    return {TEXTS: texts(packages), SBOM: sbom(packages)}
