"""An interrupt, an exit, a lack of memory or stack come out wherever the bridge runs Python code.

Each position is a way to have it run some: the same object comes out, an import asks nothing after
it, and whoever was handed over is let go of.
"""

import gc
import logging
import sys
import time

import pytest
from interrupts import INTERRUPTS, POSITIONS, Scene, left

from cai_bridge import to_cai


@pytest.mark.parametrize("error", INTERRUPTS)
@pytest.mark.parametrize("position", POSITIONS)
def test_the_same_exception_comes_out_and_everything_is_let_go(
    position, error, cuda, tmp_path, monkeypatch
):
    raised = error("now")
    at = Scene(cuda, raised, tmp_path, monkeypatch)
    call = POSITIONS[position](at)
    at.armed = True
    with pytest.raises(error) as caught:
        call()
    at.armed = False
    assert caught.value is raised
    # An end asks the libraries once more: at its next try they may work on other streams.
    wanted = 2 if position == "the end of a with block" else 1
    assert at.runs == wanted, "nobody is asked anything after it"
    raised.with_traceback(None)
    raised.__context__ = raised.__cause__ = None
    del caught, call
    gc.collect()
    assert at.x.exports == 0
    assert [one for one in at.watched if one() is not None] == []
    assert cuda.current_device == 0


@pytest.mark.parametrize("error", INTERRUPTS)
def test_one_at_the_end_of_a_with_block_keeps_what_was_on_its_way(
    error, cuda, tmp_path, monkeypatch
):
    at = Scene(cuda, error("now"), tmp_path, monkeypatch)
    call = left(at)
    at.armed = True
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value.__context__, ZeroDivisionError)


@pytest.mark.parametrize("error", INTERRUPTS)
def test_one_in_a_handler_of_our_records_comes_once_the_call_is_made(error, cuda, monkeypatch):
    raised, said, done = error("now"), [], []

    class Handler(logging.Handler):
        def emit(self, record):
            if not done:
                done.append(record)
                raise raised

    logger, handler = logging.getLogger("cai_bridge"), Handler()
    monkeypatch.setattr(sys, "unraisablehook", lambda it: said.append(it.exc_value))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    x = cuda.array(shape=4, stream=cuda.stream())
    try:
        to_cai(x, stream=cuda.stream())
        time.sleep(0)
    except BaseException as caught:
        said.append(caught)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert [id(one) for one in said] == [id(raised)]
    assert {"cuEventRecord", "cuStreamWaitEvent"} <= {call.call for call in cuda.calls}
