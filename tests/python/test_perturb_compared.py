"""`cai-bridge perturb`: what of two runs is compared: output, and checkpoints."""

from __future__ import annotations

import pytest
from perturbing import TWO, Perturb, driver, needs, run

from cai_bridge._cli.perturbed import same

__all__ = ["driver", "run"]

pytestmark = needs


def test_numbers_are_the_same_within_the_tolerance_and_text_exactly() -> None:
    assert same("loss 1.000 at 3", "loss 1.001 at 3", 0.01)
    assert not same("loss 1.000 at 3", "loss 1.001 at 3", 0.0001)
    assert not same("loss 1.000", "lost 1.000", 0.5)
    assert not same("1 2", "1", 0.5)
    assert same("1e999 1.0", "1e999 1.1", 0.2)


@pytest.mark.parametrize("what", ["bytes([0x80 + value, 10])", "(300 * '.' + str(value)).encode()"])
def test_bytes_that_are_no_text_and_the_end_of_a_long_line_are_compared_and_shown(
    what: str, run: Perturb
) -> None:
    status, found = run(
        f"""
        import sys
        {TWO}
        launch("fill", a, x, 1)
        launch("copy", b, y, x)
        value = read(y, b)
        sys.stdout.buffer.write({what})
        """
    )
    assert status == 1, found
    one, other = found["conclusion"].split("line 1: ")[1].split(" against ")
    assert one != other, found


def test_checkpoints_of_host_arrays_are_compared(run: Perturb) -> None:
    text = """
        import ctypes, numpy
        from cai_bridge.testing import checkpoint
        a, x, h = stream(), word(), pinned()
        launch("fill", a, x, 1)
        call("cuMemcpyAsync", h, x, 8, a)
        checkpoint("h", numpy.frombuffer((ctypes.c_char * 8).from_address(h), "u8").copy())
        """
    status, found = run(text, "--compare", "checkpoints")
    assert status == 1, found
    assert "'h' uint64 (1,)" in found["conclusion"]


def test_checkpoints_of_a_worker_are_compared(run: Perturb) -> None:
    text = """
        import multiprocessing, numpy
        from cai_bridge.testing import checkpoint
        launch("fill", stream(), word(), 1)
        made = multiprocessing.get_context("fork").Process
        worker = made(target=checkpoint, args=("in a worker", numpy.array([1])))
        worker.start()
        worker.join()
        """
    status, found = run(text, "--compare", "checkpoints")
    assert status == 0, found


HANDED_OVER = """
    import cai_bridge
    a, b, x, y = stream(), stream(), word(), word()
    class X:
        def __init__(self, pointer, stream):
            data = (pointer, False)
            self.__cuda_array_interface__ = {"shape": (1,), "typestr": "<u8", "data": data,
                                             "version": 3, "stream": stream}
    @cai_bridge.adapt(to="cai")
    def take(v):
        return None
    for i in range(1, 4):
        launch("fill", a, x, i)
        %s
        launch("copy", b, y, x)
        %s
        call("cuStreamSynchronize", a)
        call("cuStreamSynchronize", b)
    """


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("v = cai_bridge.from_cai(X(y, b))", "from_cai"),
        ("v = cai_bridge.to_cai(X(y, b))", "to_cai"),
        ("v = cai_bridge.to_dlpack(X(y, b))", "to_dlpack"),
        ("v = cai_bridge.convert([X(y, b)], 'cai')", "convert"),
        ("take(X(y, b))", "adapt take"),
        ("from cai_bridge.testing import checkpoint; checkpoint('my 1', X(y, b))", "my"),
    ],
)
def test_what_the_bridge_hands_over_is_a_checkpoint_of_itself(
    call: str, name: str, run: Perturb
) -> None:
    compare = ("--compare", "checkpoints", "--seeds", "2")
    status, found = run(HANDED_OVER % ("pass", call), *compare)
    assert status == 1, found
    assert f"'{name} 1' uint64 (1,)" in found["conclusion"]
    assert run(HANDED_OVER % ("order(a, b)", call), *compare)[0] == 0


def test_a_checkpoint_does_nothing_without_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from cai_bridge.testing import checkpoint

    monkeypatch.delenv("CAI_BRIDGE_PERTURB_LOG", raising=False)
    checkpoint("x", object())
