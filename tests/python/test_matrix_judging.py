"""What the matrix says of values, strides, element types and read-only memory."""

from __future__ import annotations

import pytest
from matrix_libraries import CONVERT, Heedless, Producer, Silent

from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.matrix import ROUTES, Aspect, run_matrix
from cai_bridge.conformance.requirement import NotApplicableError
from cai_bridge.testing import SimulatedCuda
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import compact_strides, flat

BY_CAI, BY_DLPACK = "x by CAI", "x by DLPack"


class Columns:
    """Every second column of an array, in its memory; speaks CAI only."""

    def __init__(self, base):
        self._base = base

    @property
    def __cuda_array_interface__(self):
        said = dict(self._base.__cuda_array_interface__)
        (rows, columns), itemsize = said["shape"], int(said["typestr"][2:])
        return said | {
            "shape": (rows, (columns + 1) // 2),
            "strides": (columns * itemsize, 2 * itemsize),
        }


class Strided(Producer):
    """Has arrays with gaps."""

    name = "strided"

    def strided(self, array):
        return Columns(array)


class Zeros(Strided):
    """Queues zeros into what it makes, on a stream that its dicts do not name."""

    name = "zeros"
    speaks = ("cai2",)

    def make(self, shape, dtype):
        return SimulatedCuda.current().array(
            fill=0.0, shape=shape, dtype=dtype, speaks=self.speaks, stream=self.stream()
        )


class Gathers(Producer):
    """Queues the copy of columns into an array of their own, on a stream that no dict names."""

    name = "gathers"

    def strided(self, array):
        columns = [row[::2] for row in array.tolist()]
        cuda = SimulatedCuda.current()
        return cuda.array(columns, speaks=("dlpack", "cai2"), stream=cuda.stream())


class Compact(Heedless):
    """Ignores strides."""

    name = "compact"

    def take(self, x):
        region, held = super().take(x)
        strides = compact_strides(region.shape, region.itemsize)
        return Region(region.ptr, region.shape, strides, region.dtype, region.itemsize), held


class NoGaps(Heedless):
    """Refuses strides."""

    name = "no gaps"

    def take(self, x):
        region, held = super().take(x)
        if region.strides != compact_strides(region.shape, region.itemsize):
            raise BufferError("strides: got gaps")
        return region, held


class Backwards(Heedless):
    """Reads the last item first."""

    name = "backwards"

    def values(self, copied):
        return list(flat(super().values(copied)))[::-1]


def judged(lab, producer, consumer, aspect, route=BY_CAI):
    """One aspect of one route."""
    (way,) = [one.way for one in ROUTES if one.name == route]
    matrix = run_matrix([producer], [consumer], lab=lab, aspects=[aspect], ways=[way])
    return matrix.cell(producer.name, consumer.name, route)[aspect]


@pytest.mark.parametrize("route", [BY_CAI, "to_cai(x)"])
def test_every_second_column_is_judged_as_well(lab, route):
    said = judged(lab, Strided, Heedless, "values", route)
    assert said == Aspect("right", "in the same memory, strided too")
    said = judged(lab, Strided, Compact, "values", route)
    assert said.outcome == "wrong"
    assert said.detail == "strided: read [1.0, 2.0, 3.0, 4.0] instead of [1, 3, 5, 7]"
    said = judged(lab, Strided, NoGaps, "values", route)
    assert said.outcome == "right"
    assert said.detail == "in the same memory; strided: BufferError: strides: got gaps"


@pytest.mark.parametrize("producer", [Zeros, Gathers])
def test_what_the_making_of_an_array_queues_is_done_before_its_values_are_judged(lab, producer):
    said = judged(lab, producer, Heedless, "values")
    assert said == Aspect("right", "in the same memory, strided too")


def test_values_in_another_order_are_told(lab):
    said = judged(lab, Producer, Backwards, "values")
    assert said.outcome == "wrong"
    assert said.detail == "read [12.0, 11.0, 10.0, 9.0] instead of [1.0, 2.0, 3.0, 4.0]"
    assert judged(lab, Producer, Backwards, "dtypes") == Aspect("wrong", "0 of 1; wrong: float32")
    said = judged(lab, simulated.Producer, Backwards, "dtypes", BY_DLPACK)
    assert said == Aspect("wrong", "0 of 2; wrong: float32, bfloat16")


@pytest.mark.parametrize("read", [True, False])
def test_a_consumer_that_reads_every_bool_alike_is_wrong(lab, read):
    class Alike(Heedless):
        dtypes = ("bool",)

        def values(self, copied):
            return [read for _ in flat(super().values(copied))]

    assert judged(lab, simulated.Producer, Alike, "dtypes") == Aspect(
        "wrong", "0 of 1; wrong: bool"
    )


def test_libraries_without_a_type_in_common_have_none_to_judge(lab):
    class Bytes(Heedless):
        dtypes = ("int8",)

    nothing = Aspect("none", "the libraries have no element type in common")
    assert judged(lab, Producer, Bytes, "dtypes") == nothing


def test_what_a_refused_type_leaves_behind_is_not_the_next_types(lab):
    class Fails(Heedless):
        def copy(self, array):
            if array[0].dtype != "bfloat16":
                return super().copy(array)
            self.current.launch(lambda: 1 // 0)
            raise TypeError("no bfloat16 here")

    class Narrow(Producer):
        dtypes = ("bfloat16", "float32")

    said = judged(lab, Narrow, Fails, "dtypes", BY_DLPACK)
    assert said == Aspect("refused", "1 of 2; refused: bfloat16 (TypeError: no bfloat16 here)")


def test_what_a_lazy_array_is_made_by_is_done_before_it_is_judged(lab):
    class Queues(Producer):
        speaks = ("cai2",)

        def lazy(self):
            cuda = SimulatedCuda.current()
            yield "late", cuda.array([1.0, 2.0], speaks="cai2", stream=cuda.stream()), [1.0, 2.0]

    assert judged(lab, Queues, Heedless, "lazy") == Aspect("right", "1 of 1")


def test_a_write_of_what_was_there_before_is_a_write(lab):
    class Nines(Silent):
        def readonly(self, array):
            return SimulatedCuda.current().array([99.0] * 12, speaks=self.speaks)

    said = judged(lab, Nines, Heedless, "readonly")
    assert said == Aspect("wrong", "the producer's read-only memory was written")


def test_who_writes_elsewhere_or_not_at_all_has_written_nothing(lab):
    class Queues(Producer):
        def readonly(self, array):
            cuda = SimulatedCuda.current()
            return cuda.array([5.0] * 12, speaks="cai", stream=cuda.stream(), readonly=True)

    class Elsewhere(Heedless):
        def fill(self, array, value):
            pass

    class Immutable(Heedless):
        def fill(self, array, value):
            raise NotApplicableError("the arrays are never written")

    said = judged(lab, Queues, Elsewhere, "readonly")
    assert said == Aspect("right", "taken, and what is written is not seen")
    said = judged(lab, Queues, Immutable, "readonly")
    assert said == Aspect("right", "taken, and not written: the arrays are never written")


@pytest.mark.parametrize("dtypes", [("float16",), ("bfloat16", "float32")])
def test_a_producer_is_asked_for_a_type_that_it_has_and_for_float32_if_it_can(lab, dtypes):
    class Choosy(Producer):
        def make(self, shape, dtype):
            assert dtype in self.dtypes
            return super().make(shape, dtype)

    Choosy.dtypes = dtypes
    # By CAI a bfloat16 array would not be read.
    assert judged(lab, Choosy, Heedless, "values") == Aspect("right", "in the same memory")


def test_arrays_that_are_all_read_only_are_converted_for_reading(lab):
    class Frozen(Producer):
        def make(self, shape, dtype):
            cuda = SimulatedCuda.current()
            return cuda.array(shape=shape, dtype=dtype, speaks=self.speaks, readonly=True)

    assert judged(lab, Frozen, Heedless, "values", CONVERT).outcome == "right"


class Wrapped:
    """An array whose dict says no address."""

    def __init__(self, array):
        self._array = array

    @property
    def __cuda_array_interface__(self):
        said = self._array.__cuda_array_interface__
        return {name: value for name, value in said.items() if name != "data"}

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **wishes):
        return self._array.__dlpack__(**wishes)


def test_an_array_is_where_either_protocol_says_that_it_is(lab):
    class NoAddress(Producer):
        def make(self, shape, dtype):
            return Wrapped(super().make(shape, dtype))

    class Nowhere(Producer):
        speaks = ("cai",)

        def make(self, shape, dtype):
            return Wrapped(super().make(shape, dtype))

    assert judged(lab, NoAddress, Heedless, "values", BY_DLPACK).outcome == "right"
    said = judged(lab, Nowhere, Heedless, "values", BY_DLPACK)
    assert said == Aspect("none", "no protocol says where the array is")


@pytest.mark.parametrize(("length", "ends"), [(300, "x"), (301, "…"), (5000, "…")])
def test_a_long_refusal_is_cut(lab, length, ends):
    class Verbose(Heedless):
        def take(self, x):
            raise BufferError("x" * (length - len("BufferError: ")))

    said = judged(lab, Producer, Verbose, "values")
    assert said.outcome == "refused"
    assert len(said.detail) == 300
    assert said.detail.startswith("BufferError: xxx")
    assert said.detail.endswith(f"x{ends}")
