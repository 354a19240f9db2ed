"""The programs of the pages on compiled programs, in their parts for the CPU: they print as shown.

`tests/gpu/test_compilers.py` runs those for a GPU.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cai_bridge import adapt

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "programs" / "compiled"

SAID = (
    ("Dynamo does not know how to trace method `arguments` of class `_Converter`",),
    ("Attempted to call function marked as skipped", "get_eval_frame_callback"),
)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_program_prints_what_the_page_shows(library):
    pytest.importorskip(library, reason="make test-clients installs it")
    done = subprocess.run(
        [sys.executable, FOLDER / f"{library}_numpy.py"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (FOLDER / f"{library}.txt").read_text("utf-8")


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin:UserWarning")
def test_the_page_is_found_by_what_dynamo_says():
    torch = pytest.importorskip("torch", reason="make test-clients installs it")
    page = (DOCS / "compiled.md").read_text("utf-8")
    adapted = adapt(lambda x: x, "numpy"), adapt(lambda x: x, "numpy", backward=lambda g, x: g)
    for f, said in zip(adapted, SAID, strict=True):
        with pytest.raises(torch._dynamo.exc.Unsupported) as refused:
            torch.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
        for words in said:
            assert words in str(refused.value)
            assert words in page


def test_the_pages_show_each_program_and_what_it_prints():
    pages = "".join((DOCS / name).read_text("utf-8") for name in ("compiled.md", "jax-jit.md"))
    shown = set(re.findall(r"(?m)^<!-- code: docs/programs/compiled/(\S+) -->$", pages))
    assert shown == {path.name for path in FOLDER.iterdir()}
