"""The extension of docs/rust.md, by the test that the page shows.

Skipped where it is not built: ``make extensions``.
"""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SHOWN = TESTS / "extension" / "test_my_kernels.py"
# One library has both modules.
extension = pytest.importorskip("tested_extension.tested_extension", reason="make extensions")


@pytest.fixture
def my_kernels(monkeypatch):
    spec = importlib.util.spec_from_file_location("my_kernels", extension.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "my_kernels", module)
    return module


@pytest.mark.parametrize(
    "name", ["test_the_kernel_waits_for_what_was_queued", "test_a_wait_that_is_left_out_is_found"]
)
def test_the_test_that_the_page_shows_passes(my_kernels, name):
    runpy.run_path(str(SHOWN))[name]()


def test_a_refused_list_is_told_of_no_function_that_an_extension_lacks(my_kernels):
    with pytest.raises(TypeError, match=r"list without a known .* __cuda_array_interface__; all"):
        my_kernels.double([1.0])
