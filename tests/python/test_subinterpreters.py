"""Subinterpreters: the extension's classes are made once a process, so it is refused there."""

import sys

import pytest
from children import assert_quiet

KINDS = ["legacy"] if sys.version_info < (3, 12) else ["legacy", "isolated"]
# CPython's own modules for its tests; each version has another.
CREATE = """
    try:
        import _interpreters as interpreters
        interpreter = interpreters.create({kind!r})
    except ImportError:
        import warnings
        warnings.simplefilter("ignore")
        import _xxsubinterpreters as interpreters
        interpreter = interpreters.create(isolated={kind!r} == "isolated")
    # Without -X dev and -W error, which the children of this process would take over.
    TEXT = '''if True:
        import sys
        sys.path[:] = {{path!r}}
        for name in ("cai_bridge", "cai_bridge._core"):
            try:
                __import__(name)
            except ImportError as error:
                said = str(error)
            else:
                raise AssertionError(name + " was imported")
            assert "subinterpreter" in said, said
    '''
    def refused():
        failed = interpreters.run_string(interpreter, TEXT.format(path=sys.path))
        assert failed is None, failed
"""


@pytest.mark.parametrize("kind", KINDS)
def test_an_import_in_a_subinterpreter_is_refused_and_the_main_one_goes_on(kind):
    assert_quiet(
        CREATE.format(kind=kind),
        """
        refused()
        with simulated_cuda() as cuda:
            x = cuda.array([1.0])
            refused()
            interpreters.destroy(interpreter)
            assert cuda.read(from_cai(to_cai(x))) == [1.0]
        """,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_subinterpreter_that_asks_first_leaves_nothing_behind(kind):
    assert_quiet(
        CREATE.format(kind=kind),
        """
        refused()
        interpreters.destroy(interpreter)
        from cai_bridge import to_cai
        from cai_bridge.testing import simulated_cuda
        with simulated_cuda() as cuda:
            assert cuda.read(to_cai(cuda.array([1.0]))) == [1.0]
        """,
        prelude="\nimport sys\n",
    )
