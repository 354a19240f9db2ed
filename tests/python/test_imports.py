"""The files of the package import each other without a circle."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent / "python"


def module_of(file, root):
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def named(file, module):
    """For each import of a file, the modules that it may mean, the deepest first."""
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    # Imports in functions and under TYPE_CHECKING count too.
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ([name.name] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            yield from ([f"{base}.{name.name}", base] for name in node.names)


def imports(root):
    """Each module below a folder, and the other modules there that it imports."""
    files = {
        module_of(file, root): file for kind in ("py", "pyi") for file in root.rglob(f"*.{kind}")
    }
    found = {}
    for module, file in files.items():
        meant = (next(filter(files.__contains__, names), None) for names in named(file, module))
        found[module] = set(meant) - {None, module}
    return found


def test_no_files_import_each_other_in_a_circle():
    found = imports(ROOT)
    assert sum(map(len, found.values())) > 300, "does the search still see the imports?"
    TopologicalSorter(found).prepare()


@pytest.mark.parametrize(
    "back",
    [
        "import house.top",
        "from house import top",
        "from house.top import name",
        "from .. import top",
        "from ..top import name",
        "def late():\n    from ..top import name",
        "if TYPE_CHECKING:\n    from ..top import name",
    ],
)
def test_the_search_sees_a_circle(back, tmp_path):
    rooms = tmp_path / "house" / "rooms"
    rooms.mkdir(parents=True)
    (tmp_path / "house" / "__init__.py").write_text("")
    (tmp_path / "house" / "top.py").write_text("from .rooms import low")
    (rooms / "__init__.py").write_text("from .low import name")
    (rooms / "low.py").write_text(back)
    with pytest.raises(CycleError) as raised:
        TopologicalSorter(imports(tmp_path)).prepare()
    circle = raised.value.args[1]
    assert set(circle) >= {"house.top", "house.rooms.low"}
