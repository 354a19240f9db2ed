"""The matrix on the simulated device: each outcome from a pair of libraries that has it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from matrix_libraries import (
    BY_CAI,
    BY_DLPACK,
    CONVERT,
    Blocks,
    Copies,
    Heedless,
    Nameless,
    OldDict,
    Producer,
    Refuses,
    Silent,
    judged,
)

from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.matrix import ASPECTS, ROUTES, WAYS, Aspect, Matrix, advised, run_matrix
from cai_bridge.conformance.named import LIBRARIES
from cai_bridge.conformance.requirement import NotApplicableError
from cai_bridge.testing import SimulatedCuda, describe
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import compact_strides, flat

NATIVE = [route.name for route in ROUTES if not route.bridged]
BRIDGED = [route.name for route in ROUTES if route.bridged]
BACK_AND_FORTH = "from_cai(to_cai(x))"


def outcomes(matrix, aspect):
    return {one.route: one[aspect].outcome for one in matrix.cells}


def test_the_matrix_holds_a_cell_for_each_producer_consumer_and_route(lab):
    seen = []
    matrix = run_matrix(
        [Producer, OldDict], [Heedless], lab=lab, progress=lambda *said: seen.append(said)
    )
    assert [(one.producer, one.route) for one in matrix.cells] == [
        (name, route.name) for name in ("pool", "old dict") for route in ROUTES
    ]
    assert [done for done, _, _ in seen] == list(range(1, 2 * len(ROUTES) + 1))
    assert {count for _, count, _ in seen} == {2 * len(ROUTES)}
    assert [cell for _, _, cell in seen] == list(matrix.cells)
    assert matrix.place == "the simulated device"
    assert matrix.cell("pool", "heedless", "to_cai(x)").bridged
    with pytest.raises(KeyError, match="'pool', 'heedless', 'by post'"):
        matrix.cell("pool", "heedless", "by post")


def test_the_simulated_library_hands_its_arrays_to_itself(lab):
    matrix = run_matrix(["simulated"], ["simulated"], lab=lab)
    for aspect in ("values", "handover", "host", "dtypes"):
        assert set(outcomes(matrix, aspect).values()) == {"right"}, aspect
    released = outcomes(matrix, "release")
    # By DLPack the consumer has no stream to give the array back on, so its host waits.
    by_dlpack = ("x by DLPack", "from_cai(x)", "from_cai(to_cai(x))")
    assert [released.pop(one) for one in by_dlpack] == ["waits"] * 3
    assert set(released.values()) == {"right"}


def test_a_dict_that_says_nothing_of_streams_is_read_too_early_and_the_bridge_orders(lab):
    matrix = run_matrix([OldDict], [Heedless], lab=lab, aspects=["handover"])
    found = outcomes(matrix, "handover")
    assert found.pop("to_cai(x)") == "wrong"  # it names the stream, which is ignored
    assert found == {
        BY_CAI: "wrong",
        BY_DLPACK: "right",
        "to_cai(x, stream=s)": "right",
        "from_cai(x)": "right",
        "from_cai(to_cai(x))": "right",
        CONVERT: "right",
    }
    wrong = matrix.cell("old dict", "heedless", "x by CAI")["handover"]
    assert (wrong.wrong, wrong.rounds) == (1, 1)
    assert "race" in wrong.detail


def test_memory_that_is_handed_out_again_is_overwritten_and_the_bridge_orders(lab):
    matrix = run_matrix([Producer], [Heedless], lab=lab, aspects=["release"])
    found = outcomes(matrix, "release")
    assert {found[name] for name in NATIVE} == {"wrong"}
    assert {found[name] for name in BRIDGED} == {"right"}
    # Where the bridge knows the producer's stream; else it keeps the array until the read is done.
    for name in (*NATIVE, "from_cai(x)"):
        detail = matrix.cell("pool", "heedless", name)["release"].detail
        assert "handed out again in 1 of 1" in detail


def test_read_only_memory_that_is_written_is_told(lab):
    both = [Heedless, simulated.Consumer]
    matrix = run_matrix([Producer, Silent], both, lab=lab, aspects=["readonly"])
    for route in ROUTES:
        assert matrix.cell("silent", "heedless", route.name)["readonly"].outcome == "wrong"
        if route.name == CONVERT:
            continue
        assert matrix.cell("pool", "heedless", route.name)["readonly"].outcome == "ignored"
        honoured = matrix.cell("pool", "simulated", route.name)["readonly"]
        assert honoured.outcome == "right"
        assert "read-only" in honoured.detail


def test_convert_makes_nothing_that_may_be_written_of_what_may_not(lab):
    class Reads(simulated.Consumer):
        """Says that it never writes, as JAX."""

        def __init__(self):
            super().__init__()
            self.library.writes = False

        name = "reads"

        def fill(self, array, value):
            # Past the flag: the simulated device refuses a read-only region.
            self.current.fill(replace(array.region, readonly=False), value)
            self.give_back_written(array)

    matrix = run_matrix([Producer], [Heedless, Reads], lab=lab, ways=["convert"])
    refused = matrix.cell("pool", "heedless", CONVERT)
    assert refused["readonly"].outcome == "refused"
    assert refused["readonly"].detail.startswith("BufferError: readonly: got read-only memory")
    # All else is only read, for which read-only memory is vouched for.
    assert {name: one.outcome for name, one in refused.aspects.items()} == {
        **dict.fromkeys(ASPECTS, "right"),
        "readonly": "refused",
        "lazy": "none",
    }
    # Who says so and writes is not told by anybody that it must not.
    assert matrix.cell("pool", "reads", CONVERT)["readonly"].outcome == "wrong"


def test_a_refusal_says_what_was_raised(lab):
    matrix = run_matrix([Producer], [Refuses], lab=lab)
    for cell in matrix.cells:
        for aspect in ("values", "handover", "host", "release", "readonly"):
            if (cell.route, aspect) != (CONVERT, "readonly"):  # the bridge refuses it before
                assert cell[aspect] == Aspect("refused", "BufferError: not today")


def test_a_library_hands_its_arrays_to_itself_without_a_protocol(lab):
    class Same(Heedless):
        name = "pool"

    matrix = run_matrix([Producer], [Same], lab=lab, aspects=["values"])
    assert {one.outcome for one in (c["values"] for c in matrix.cells if not c.bridged)} == {"none"}
    found = outcomes(matrix, "values")
    assert found.pop(CONVERT) == "none"  # they are given back as they are
    assert {found[name] for name in BRIDGED if name != CONVERT} == {"right"}


def test_a_producer_that_can_make_nothing_is_none(lab):
    class Broken(Producer):
        name = "broken"

        def make(self, shape, dtype):
            raise MemoryError("full")

    matrix = run_matrix([Broken], [Heedless], lab=lab)
    assert {one.detail for cell in matrix.cells for one in cell.aspects.values()} == {
        "no array could be made: MemoryError: full"
    }


def test_rounds_are_counted_and_the_lab_keeps_its_own(lab):
    matrix = run_matrix([OldDict], [Heedless], lab=lab, rounds=3, aspects=["handover"])
    assert (lab.rounds, matrix.rounds) == (1, 3)
    wrong = matrix.cell("old dict", "heedless", BY_CAI)["handover"]
    assert (wrong.wrong, wrong.rounds) == (3, 3)


def test_aspects_and_ways_are_chosen_and_kept_in_their_order(lab):
    chosen = {"aspects": ["host", "values"], "ways": ["convert", "native"]}
    matrix = run_matrix([Producer], [Heedless], lab=lab, **chosen)
    assert [list(one.aspects) for one in matrix.cells] == [["values", "host"]] * 3
    assert [one.route for one in matrix.cells] == [*NATIVE, CONVERT]
    assert list(run_matrix([Producer], [Heedless], lab=lab).cells[0].aspects) == list(ASPECTS)
    assert {route.way for route in ROUTES} == set(WAYS)
    for producer, wishes, said in (
        (Producer, {"aspects": ["colour"]}, "got 'colour'; allowed: values"),
        (Producer, {"ways": ["post"]}, "ways: got 'post'; allowed: native, views, convert"),
        ("abacus", {}, "got 'abacus'"),
    ):
        with pytest.raises(ValueError, match=said):
            run_matrix([producer], [Heedless], lab=lab, **wishes)


def test_a_host_that_waits_while_it_queues_the_hold_is_not_held_by_the_end(lab):
    class Slow(simulated.Consumer):
        name = "slow"
        doors = ("cai",)

        def hold(self, lab, stream):
            self.current.synchronize()
            return super().hold(lab, stream)

    matrix = run_matrix([Producer], [Slow], lab=lab, aspects=["release"], ways=["views"])
    found = outcomes(matrix, "release")
    assert {*found.values()} - {"none"} == {"right"}


def test_a_matrix_is_data_and_comes_back(lab):
    matrix = run_matrix([OldDict, Producer], [Heedless, Blocks], lab=lab)
    assert Matrix.from_dict(json.loads(json.dumps(matrix.to_dict()))) == matrix
    lines = matrix.to_json().splitlines()
    assert json.loads("\n".join(lines)) == matrix.to_dict()
    assert sum('"aspects"' in line for line in lines) == len(matrix.cells)
    with pytest.raises(ValueError, match="outcome: got 'odd'; allowed: right"):
        Aspect.from_dict({"outcome": "odd"})


def test_the_advised_route_is_the_first_of_the_consumers_that_there_is(lab):
    matrix = run_matrix([Producer], [Heedless], lab=lab, aspects=["values"])
    assert matrix.advised("pool", "heedless").route == "from_cai(to_cai(x))"
    assert matrix.advised("pool", "nobody") is None
    assert advised("cuda.core")[0] == "to_cai(x, stream=s)"
    for consumer in LIBRARIES:
        assert set(advised(consumer)) <= {route.name for route in ROUTES if route.bridged}


def test_values_that_are_only_noted_are_told(lab):
    class Noting(Producer):
        name = "noting"

        def lazy(self):
            array = self.make((2,), "float32")
            place = describe(array)["CAI"]
            lab.put(Region(place.ptr, (2,), (4,), "float32", 4), [1.0, 2.0])
            yield "negative", array, [-1.0, -2.0]
            yield "as it is", array, [1.0, 2.0]

    matrix = run_matrix([Producer, Noting], [Heedless, Refuses], lab=lab, aspects=["lazy"])
    for route in ROUTES:
        noted = matrix.cell("noting", "heedless", route.name)["lazy"]
        assert (noted.outcome, noted.detail) == ("wrong", "1 of 2; wrong: negative")
        refused = matrix.cell("noting", "refuses", route.name)["lazy"]
        assert refused.outcome == "refused"
        assert refused.detail.startswith("0 of 2; refused: negative (BufferError: not today)")
        assert matrix.cell("pool", "heedless", route.name)["lazy"].outcome == "none"


class OnlyDlpack(Producer):
    speaks = ("dlpack",)


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


class Plain(Heedless):
    def copy(self, array):
        if array[0].dtype == "bfloat16":
            self.current.launch(lambda: 1 // 0)  # which is not the next type's
            raise TypeError("no bfloat16 here")
        return super().copy(array)


class Narrow(Producer):
    dtypes = ("bfloat16", "float32")


class Bytes(Heedless):
    dtypes = ("int8",)


def reading_every_bool_as(read):
    class Alike(Heedless):
        dtypes = ("bool",)

        def values(self, copied):
            return [read for _ in flat(super().values(copied))]

    return Alike


class Unknown(Heedless):
    def __init__(self):
        super().__init__()
        self.library = None


class Waits(simulated.Consumer):
    def convert(self, x, stream, *, readonly=None):
        made = super().convert(x, stream, readonly=readonly)
        self.current.synchronize()
        return made


class Hasty(Heedless):
    def convert(self, x, stream, *, readonly=None):
        return self.take(x)


class Late(Producer):
    """Queues what its lazy and its read-only arrays are made by."""

    speaks = ("cai2",)

    def lazy(self):
        cuda = SimulatedCuda.current()
        yield "late", cuda.array([1.0, 2.0], speaks="cai2", stream=cuda.stream()), [1.0, 2.0]

    def readonly(self, array):
        cuda = SimulatedCuda.current()
        return cuda.array([5.0] * 12, speaks="cai", stream=cuda.stream(), readonly=True)


class Nines(Silent):
    """Has in its read-only memory what is written to see whether it can be."""

    def readonly(self, array):
        return SimulatedCuda.current().array([99.0] * 12, speaks=self.speaks)


class Elsewhere(Heedless):
    def fill(self, array, value):
        pass


class Immutable(Heedless):
    def fill(self, array, value):
        raise NotApplicableError("the arrays are never written")


def choosy(*names):
    class Choosy(Producer):
        """Is asked only for types that it has: for float32 if it can."""

        dtypes = names

        def make(self, shape, dtype):
            assert dtype in names
            return super().make(shape, dtype)

    return Choosy


class Frozen(Producer):
    def make(self, shape, dtype):
        cuda = SimulatedCuda.current()
        return cuda.array(shape=shape, dtype=dtype, speaks=self.speaks, readonly=True)


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


class NoAddress(Producer):
    def make(self, shape, dtype):
        return Wrapped(super().make(shape, dtype))


class Nowhere(NoAddress):
    speaks = ("cai",)


def verbose(length):
    class Verbose(Heedless):
        def take(self, x):
            raise BufferError("x" * (length - len("BufferError: ")))

    return Verbose


STRIDED = "in the same memory, strided too"
# Producer, consumer, aspect, route, outcome, and the end of what is told.
CELLS = [
    (Producer, Blocks, "host", BY_CAI, "waits", ""),
    (Producer, Blocks, "handover", BY_CAI, "waits", ""),
    (Producer, Blocks, "host", "from_cai(x)", "none", ""),
    (Producer, Copies, "values", BY_CAI, "wrong", "copy"),
    *((Strided, Heedless, "values", route, "right", STRIDED) for route in (BY_CAI, "to_cai(x)")),
    *(
        (Strided, Compact, "values", route, "wrong", "strided: read [1.0, 2.0, 3.0, 4.0] instead")
        for route in (BY_CAI, "to_cai(x)")
    ),
    *(
        (Strided, NoGaps, "values", route, "right", "; strided: BufferError: strides: got gaps")
        for route in (BY_CAI, "to_cai(x)")
    ),
    # What the making of an array queues is done before its values are judged.
    (Zeros, Heedless, "values", BY_CAI, "right", STRIDED),
    (Producer, Backwards, "values", BY_CAI, "wrong", "read [12.0, 11.0, 10.0, 9.0] instead of [1"),
    (choosy("float16"), Heedless, "values", BY_CAI, "right", "in the same memory"),
    # By CAI a bfloat16 array would not be read.
    (choosy("bfloat16", "float32"), Heedless, "values", BY_CAI, "right", "in the same memory"),
    # Arrays that are all read-only are converted for reading.
    (Frozen, Heedless, "values", CONVERT, "right", ""),
    (NoAddress, Heedless, "values", BY_DLPACK, "right", ""),
    (Nowhere, Heedless, "values", BY_DLPACK, "none", "no protocol says where the array is"),
    (OnlyDlpack, Heedless, "values", BY_CAI, "none", "the producer does not speak CAI"),
    (OnlyDlpack, Heedless, "values", BACK_AND_FORTH, "right", ""),
    (OnlyDlpack, Blocks, "values", BY_DLPACK, "none", "the consumer does not speak DLPack"),
    (Producer, Unknown, "values", CONVERT, "none", "convert() does not know the consumer"),
    *(
        (Producer, verbose(length), "values", BY_CAI, "refused", "BufferError: " + said)
        for length, said in ((300, "x" * 287), (301, "x" * 286 + "…"), (5000, "x" * 286 + "…"))
    ),
    # CAI has no name for bfloat16, so that nothing can be asked of it.
    (Producer, Heedless, "dtypes", BY_CAI, "right", "1 of 1"),
    (Producer, Heedless, "dtypes", BY_DLPACK, "right", "2 of 2"),
    *(
        (one, Plain, "dtypes", BY_DLPACK, "refused", "1 of 2; refused: bfloat16 (TypeError: no bf")
        for one in (Producer, Narrow)
    ),
    (Producer, Backwards, "dtypes", BY_CAI, "wrong", "0 of 1; wrong: float32"),
    (
        *(simulated.Producer, Backwards, "dtypes", BY_DLPACK),
        *("wrong", "0 of 2; wrong: float32, bfloat16"),
    ),
    *(
        (simulated.Producer, reading_every_bool_as(one), "dtypes", BY_CAI, "wrong", "wrong: bool")
        for one in (True, False)
    ),
    (
        *(Producer, Bytes, "dtypes", BY_CAI),
        *("none", "the libraries have no element type in common"),
    ),
    (
        *(Producer, Nameless, "handover", "to_cai(x, stream=s)"),
        *("none", "the consumer's streams have no names"),
    ),
    (Producer, Nameless, "release", BY_DLPACK, "none", ""),
    *((OldDict, Waits, aspect, CONVERT, "waits", "") for aspect in ("handover", "host")),
    *((OldDict, Heedless, aspect, CONVERT, "right", "") for aspect in ("handover", "host")),
    *((OldDict, Hasty, aspect, CONVERT, "wrong", "") for aspect in ("release", "readonly")),
    (Late, Heedless, "lazy", BY_CAI, "right", "1 of 1"),
    # A write of what was there before is a write.
    (Nines, Heedless, "readonly", BY_CAI, "wrong", "the producer's read-only memory was written"),
    (Late, Elsewhere, "readonly", BY_CAI, "right", "taken, and what is written is not seen"),
    (
        *(Late, Immutable, "readonly", BY_CAI),
        *("right", "taken, and not written: the arrays are never written"),
    ),
]


@pytest.mark.parametrize(("producer", "consumer", "aspect", "route", "outcome", "said"), CELLS)
def test_a_cell_says_what_came_of_it(producer, consumer, aspect, route, outcome, said, lab):
    found = judged(lab, producer, consumer, aspect, route)
    assert (found.outcome, said in found.detail) == (outcome, True), found
