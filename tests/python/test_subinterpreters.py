"""Subinterpreters: the extension's classes are made once a process, so it is refused there."""

import sys

import pytest
from children import PRELUDE, assert_quiet

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
    refused()
"""
GOES_ON = """
    from cai_bridge import from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
    with simulated_cuda() as cuda:
        x = cuda.array([1.0])
        refused()
        interpreters.destroy(interpreter)
        assert cuda.read(from_cai(to_cai(x))) == [1.0]
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asks", ["first", "second"])
def test_an_import_in_a_subinterpreter_is_refused_and_the_main_one_goes_on(asks, kind):
    prelude = "\nimport sys\n" if asks == "first" else PRELUDE
    assert_quiet(CREATE.format(kind=kind), GOES_ON, prelude=prelude)
