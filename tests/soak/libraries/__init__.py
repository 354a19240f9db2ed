"""Random programs over the real libraries, each right by what the README promises.

A program makes arrays late in torch, CuPy, Numba and JAX, hands them on by every route, reads and
writes them late, drops the names in any order, and lets the producer's allocator use the memory
again at once. `discipline` says which programs are right; `draw` draws programs that keep to it;
`machine` runs one. `room` is what the soak has to know of it.
"""
