"""What makes a release: the README's links, what a wheel must have, generated parts of pages."""

import io
import json
import re
import runpy
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from generating import pages

ROOT = Path(__file__).parents[2]
LINKS = runpy.run_path(str(ROOT / "make" / "absolute_links.py"))
WHEEL = runpy.run_path(str(ROOT / "make" / "check_wheel.py"))
PGO = runpy.run_path(str(ROOT / "make" / "pgo.py"))


@pytest.mark.parametrize(
    ("text", "absolute"),
    [
        ("[a](docs/a.md)", "[a](https://host/docs/a.md)"),
        ("![a picture](docs/a.svg)", "![a picture](https://host/docs/a.svg)"),
        ("[a](docs/a.md#there)", "[a](https://host/docs/a.md#there)"),
        ("[a](https://other/a)", "[a](https://other/a)"),
        ("[a](#here)", "[a](#here)"),
        ("[a](mailto:a@b)", "[a](mailto:a@b)"),
        ("f(x)[0](y)", "f(x)[0](https://host/y)"),
    ],
)
def test_a_relative_link_is_absolute_once_there_is_a_base(text, absolute):
    assert LINKS["absolute"](text, "https://host/") == absolute
    assert LINKS["absolute"](text, "") == text


WHOLE = [
    "cai_bridge/_core.abi3.so",
    "cai_bridge/_core.pyi",
    "cai_bridge/_perturb.so",
    "cai_bridge/py.typed",
    "cai_bridge/include/cai_bridge.h",
    "pytest_cai_bridge.py",
    "cai_bridge-1.dist-info/licenses/LICENSE-MIT",
    "cai_bridge-1.dist-info/licenses/LICENSE-APACHE",
    "cai_bridge-1.dist-info/licenses/THIRD-PARTY-LICENSES",
    "cai_bridge-1.dist-info/sboms/sbom.cdx.json",
]


# What differs from a whole wheel, and what is said of it.
MISSING = [([one for one in WHOLE if one != missing], {}, "got not one file ") for missing in WHOLE]
WHEELS = [
    (WHOLE, {}, None),
    *MISSING,
    (WHOLE, {"text": f"{ROOT}/src"}, f"cai_bridge/_core.abi3.so: got the path {ROOT}"),
    (WHOLE, {"tag": "linux"}, "got no manylinux tag"),
]


@pytest.mark.parametrize(("names", "differs", "said"), WHEELS, ids=[one[2] for one in WHEELS])
def test_a_wheel_has_its_files_no_path_of_this_machine_and_a_tag(tmp_path, names, differs, said):
    how = {"text": "", "tag": "manylinux_2_28", **differs}
    path = tmp_path / f"cai_bridge-1-cp311-abi3-{how['tag']}_x86_64.whl"
    with zipfile.ZipFile(path, "w") as made:
        for name in names:
            made.writestr(name, how["text"])
    found = [one.partition(": ")[2] for one in WHEEL["complaints"](path, published=True)]
    assert any(one.startswith(said) for one in found) if said else found == []


SOURCES = [
    *("pyproject.toml", "Cargo.lock", "src/lib.rs", "python/cai_bridge/__init__.py"),
    *("make/backend.py", "perturb/build.rs", "perturb/Cargo.lock"),
    *("LICENSE-MIT", "THIRD-PARTY-LICENSES"),
]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ([], []),
        ([".venv/lib/LICENSE-MIT"], ["got .venv/lib/LICENSE-MIT"]),
        (["python/cai_bridge/_perturb.so"], ["got python/cai_bridge/_perturb.so"]),
        (["tests/test_a.py"], ["got tests/test_a.py"]),
        (None, ["got no perturb/Cargo.lock"]),
    ],
    ids=["whole", "of an environment", "built", "tests", "without a lock"],
)
def test_sources_are_whole_and_nothing_lies_beside_them(tmp_path, change, found):
    names = [one for one in SOURCES if change is not None or one != "perturb/Cargo.lock"]
    path = tmp_path / "cai_bridge-1.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name in [*names, *(change or [])]:
            made.addfile(tarfile.TarInfo(f"cai_bridge-1/{name}"), io.BytesIO())
    assert [one.partition(": ")[2] for one in WHEEL["of_sources"](path)] == found


def test_the_profile_is_for_its_compiler_and_target_alone(tmp_path, capsys, monkeypatch):
    flags, about = PGO["flags"], json.loads(PGO["ABOUT"].read_text())
    # As in the module: runpy's dict is a copy.
    names = flags.__globals__
    monkeypatch.setitem(names, "UNPACKED", tmp_path / "profile")
    monkeypatch.setitem(names, "said", lambda *_: about["rustc"])
    assert flags(about["target"]).split()[0] == f"-Cprofile-use={tmp_path / 'profile'}"
    assert (tmp_path / "profile").read_bytes() == PGO["unpacked"]()
    for released in (False, True):
        assert flags("aarch64-unknown-linux-gnu", released=released) == ""
    monkeypatch.setitem(names, "said", lambda *_: "rustc 1.94.0")
    assert flags(about["target"]) == ""
    assert f"{about['rustc']}, not rustc 1.94.0" in capsys.readouterr().err
    # A release does not lose it in silence; CI installs what is allowed.
    with pytest.raises(SystemExit, match=f"allowed: Rust {PGO['compiler']()}, or PGO=0"):
        flags(about["target"], released=True)


# What rustc 1.95 says of a function that is new, and of one that is another than it was.
NEW = "warning: cgu.0: no profile data available for function {} Hash = 7 up to 0 count discarded\n"
CHANGED = (
    "warning: cgu.0: function control flow change detected (hash mismatch) {} Hash = 7"
    " up to {} count discarded\n"
)


@pytest.mark.parametrize(
    ("new", "changed", "old"),
    [
        ("0", "0", []),
        ("0.04", "0.04", []),
        ("0.06", "0", ["the profile is old: functions"]),
        ("0", "0.06", ["the profile is old: counts"]),
    ],
)
def test_an_old_profile_is_noticed(new, changed, old):
    about = json.loads(PGO["ABOUT"].read_text())
    text = "".join(NEW.format(f"_R{at}") for at in range(int(float(new) * about["functions"])))
    text += CHANGED.format("_Rchanged", int(float(changed) * about["counts"]))
    assert PGO["missing"](text) == old
    assert PGO["missing"](text, 0.25) == []


def test_a_section_is_taken_out_of_a_program_and_moved_to_the_margin():
    page = "<!-- code: docs/programs/start.py:gpu -->\n\n```python\nold\n```\n"
    written = pages.written(page)
    assert "\nimport cupy\n" in written
    assert "old" not in written
    assert pages.written(written) == written
    with pytest.raises(SystemExit, match="has no section 'nothing'"):
        pages.code("docs/programs/start.py:nothing")


def test_names_become_a_table_of_their_first_sentences():
    page = "<!-- names: cai_bridge register -->\n<!-- end -->\n"
    row = "| `register(library)` | Add a library to `convert` and `adapt`. |"
    assert row in pages.written(page)


def test_every_file_that_says_the_version_says_the_crates():
    version = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["package"]["version"]
    series = version.rpartition(".")[0]
    said = {
        "CITATION.cff": f"\nversion: {version}\n",
        "CHANGELOG.md": f"\n## {version} (",
        "README.md": f" Version {series} ",
        "recipe/recipe.yaml": f'  version: "{version}"\n',
        "docs/publishing.md": f"`v{version}`",
        "docs/rust.md": f'cai_bridge = {{ version = "{series}", ',
        "src/front_kernel.md": f'cai_bridge = {{ version = "{series}", ',
    }
    missing = [name for name, text in said.items() if text not in (ROOT / name).read_text("utf-8")]
    assert not missing
    headings = re.findall(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert headings[0] == version
