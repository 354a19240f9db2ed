"""The changes of `python -m tests.mutants`: what they are, and that those listed can be made."""

import ast
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

import cai_bridge
from mutants import py_layer
from mutants.changes import changes

ROOT = Path(__file__).parents[2]
PACKAGE = Path(cai_bridge.__file__).parent
ARGUED = tomllib.loads((ROOT / "tests/mutants/argued.toml").read_text())["reason"]

SOURCE = '''
LIMIT = 3

def judge(x, most=2):
    """Its docstring stays."""
    if x is None:
        raise TypeError(f"got {x + 1}")
    log(x)
    return x > most and not x % 2
'''
MADE = [
    ("x, most=2", "x, most=3"),
    ("if x is None:", "if not x is None:"),
    ("x is None", "x is not None"),
    ("raise TypeError(f'got {x + 1}')", "raise KeyError"),
    ("log(x)", "None"),
    ("return x > most and (not x % 2)", "return None"),
    ("x > most and (not x % 2)", "x > most or not x % 2"),
    ("x > most", "x >= most"),
    ("not x % 2", "+bool(x % 2)"),
    ("x % 2", "x * 2"),
    ("x % 2", "x % 3"),
]


def test_each_expression_that_decides_is_changed_by_itself():
    made = changes(SOURCE)
    assert sorted((one.before, one.after) for one in made) == sorted(MADE)
    assert len({one.text for one in made}) == len(made)
    for one in made:
        tree = ast.parse(one.text)
        assert ast.unparse(ast.parse(SOURCE)) != one.text
        assert ast.get_docstring(tree.body[1]) == "Its docstring stays."
        assert (one.function, one.body) == ("judge", range(4, 10))
        assert one.line in one.body


def test_what_is_argued_is_a_change_that_can_be_made():
    argued = defaultdict(set)
    for row in ARGUED:
        assert row["why"]
        for file, *change in row["changes"]:
            argued[file].add(tuple(change))
    for file, some in argued.items():
        made = changes((PACKAGE / file).read_text())
        assert some <= {(one.function, one.before, one.after) for one in made}


@pytest.mark.parametrize("mutant", py_layer.mutants(), ids=lambda mutant: mutant.name)
def test_each_mistake_of_the_list_can_be_made(mutant):
    source = (ROOT / mutant.file).read_text()
    assert mutant.made(source) != source
    assert all((ROOT / py_layer.file_of(name)).exists() for name in mutant.tests)
