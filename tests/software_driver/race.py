"""A race, for docs/races.md: one library's kernel writes what another's reads, on two streams."""

from soft import call, launch, order, read, stream, word


class cupy:  # stands in for a library that takes an array as it is
    @staticmethod
    def asarray(x):
        return x


writer, reader, x, y = stream(), stream(), word(), word()
for step in range(1, 4):
    launch("fill", writer, x, step)
    z = cupy.asarray(x)
    launch("copy", reader, y, z)
    print("step", step, "loss", read(y, reader))
    order(reader, writer)
call("cuCtxSynchronize")
