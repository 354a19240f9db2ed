"""A captured graph is launched while its input is still being written on another stream."""

import cupy
from common import WORDS, run

writer, player = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
x, y = cupy.zeros(WORDS, dtype="f4"), cupy.zeros(WORDS, dtype="f4")
cupy.cuda.Device().synchronize()
with player:
    cupy.multiply(x, 1, out=y)
    y.max().get()
    player.begin_capture()
    cupy.multiply(x, 1, out=y)
    graph = player.end_capture()
cupy.cuda.Device().synchronize()


def play(number: int, *, waited: bool) -> float:
    with writer:
        x.fill(number)  # the write
    if waited:
        player.wait_event(writer.record())
    graph.launch(player)  # the read
    with player:
        got = y.max().get()
    writer.wait_event(player.record())
    return got


run(lambda number: play(number, waited=False), lambda number: play(number, waited=True))
