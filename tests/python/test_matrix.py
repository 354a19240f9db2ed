"""The matrix on the simulated device: each outcome from a pair of libraries that has it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from matrix_libraries import (
    CONVERT,
    Blocks,
    Copies,
    Heedless,
    Nameless,
    OldDict,
    Producer,
    Refuses,
    Silent,
)

from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.matrix import ASPECTS, ROUTES, WAYS, Aspect, Matrix, advised, run_matrix
from cai_bridge.conformance.named import LIBRARIES
from cai_bridge.testing import describe
from cai_bridge.testing._region import Region

NATIVE = [route.name for route in ROUTES if not route.bridged]
BRIDGED = [route.name for route in ROUTES if route.bridged]


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
    with pytest.raises(KeyError):
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
        "x by CAI": "wrong",
        "x by DLPack": "right",
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


def test_a_host_that_waits_is_told(lab):
    matrix = run_matrix([Producer], [Blocks], lab=lab, aspects=["handover", "host"])
    native = matrix.cell("pool", "blocks", "x by CAI")
    assert native["host"].outcome == "waits"
    assert native["handover"].outcome == "waits"
    assert native["host"].ms is not None
    assert matrix.cell("pool", "blocks", "from_cai(x)")["host"].outcome == "none"


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


def test_a_type_that_arrives_as_another_is_told(lab):
    class Plain(Heedless):
        name = "plain"

        def copy(self, array):
            if array[0].dtype == "bfloat16":
                raise TypeError("no bfloat16 here")
            return super().copy(array)

    matrix = run_matrix([Producer], [Heedless, Plain], lab=lab, aspects=["dtypes"])
    # CAI has no name for bfloat16, so that nothing can be asked of it.
    assert matrix.cell("pool", "heedless", "x by CAI")["dtypes"].detail == "1 of 1"
    assert matrix.cell("pool", "heedless", "x by DLPack")["dtypes"].detail == "2 of 2"
    refused = matrix.cell("pool", "plain", "x by DLPack")["dtypes"]
    assert refused.outcome == "refused"
    assert refused.detail == "1 of 2; refused: bfloat16 (TypeError: no bfloat16 here)"


def test_a_copy_is_told_from_the_producers_memory(lab):
    matrix = run_matrix([Producer], [Copies], lab=lab, aspects=["values"])
    native = matrix.cell("pool", "copies", "x by CAI")["values"]
    assert native.outcome == "wrong"
    assert "copy" in native.detail


def test_a_refusal_says_what_was_raised(lab):
    matrix = run_matrix([Producer], [Refuses], lab=lab)
    for cell in matrix.cells:
        for aspect in ("values", "handover", "host", "release", "readonly"):
            if (cell.route, aspect) != (CONVERT, "readonly"):  # the bridge refuses it before
                assert cell[aspect] == Aspect("refused", "BufferError: not today")


def test_a_route_that_needs_a_streams_name_is_none_where_it_has_none(lab):
    matrix = run_matrix([Producer], [Nameless], lab=lab, aspects=["handover", "release"])
    told = matrix.cell("pool", "nameless", "to_cai(x, stream=s)")
    assert told["handover"] == Aspect("none", "the consumer's streams have no names")
    assert not told.exists
    assert matrix.cell("pool", "nameless", "x by DLPack")["release"].outcome == "none"


def test_a_protocol_that_is_not_spoken_is_none(lab):
    class OnlyDlpack(Producer):
        speaks = ("dlpack",)
        name = "only DLPack"

    matrix = run_matrix([OnlyDlpack], [Heedless, Blocks], lab=lab, aspects=["values"])
    assert matrix.cell("only DLPack", "heedless", "x by CAI")["values"] == Aspect(
        "none", "the producer does not speak CAI"
    )
    assert (
        matrix.cell("only DLPack", "heedless", "from_cai(to_cai(x))")["values"].outcome == "right"
    )
    assert matrix.cell("only DLPack", "blocks", "x by DLPack")["values"] == Aspect(
        "none", "the consumer does not speak DLPack"
    )


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


def test_what_is_done_before_it_is_looked_at_shows_nothing(lab, monkeypatch):
    class Done:
        pending = False

        def release(self):
            pass

    monkeypatch.setattr(lab, "hold", lambda stream: Done())
    matrix = run_matrix([Producer], [Heedless], lab=lab, aspects=["handover"])
    assert matrix.cell("pool", "heedless", "x by DLPack")["handover"].outcome == "none"


def test_rounds_are_counted_and_the_lab_keeps_its_own(lab):
    matrix = run_matrix([OldDict], [Heedless], lab=lab, rounds=3, aspects=["handover"])
    assert lab.rounds == 1
    assert matrix.rounds == 3
    wrong = matrix.cell("old dict", "heedless", "x by CAI")["handover"]
    assert (wrong.wrong, wrong.rounds) == (3, 3)


def test_aspects_are_chosen_and_kept_in_their_order(lab):
    matrix = run_matrix([Producer], [Heedless], lab=lab, aspects=["host", "values"])
    assert [list(one.aspects) for one in matrix.cells] == [["values", "host"]] * len(ROUTES)
    assert list(run_matrix([Producer], [Heedless], lab=lab).cells[0].aspects) == list(ASPECTS)
    with pytest.raises(ValueError, match="got 'colour'; allowed: values"):
        run_matrix([Producer], [Heedless], lab=lab, aspects=["colour"])


def test_a_library_that_is_not_known_is_a_mistake(lab):
    with pytest.raises(ValueError, match="got 'abacus'"):
        run_matrix(["abacus"], ["simulated"], lab=lab)


def test_ways_are_chosen_and_keep_their_order(lab):
    matrix = run_matrix(
        [Producer], [Heedless], lab=lab, aspects=["values"], ways=["convert", "native"]
    )
    assert [one.route for one in matrix.cells] == [*NATIVE, CONVERT]
    assert {route.way for route in ROUTES} == set(WAYS)
    with pytest.raises(ValueError, match="ways: got 'post'; allowed: native, views, convert"):
        run_matrix([Producer], [Heedless], lab=lab, ways=["post"])


def test_what_convert_does_not_know_is_none(lab):
    class Unknown(Heedless):
        name = "unknown"

        def __init__(self):
            super().__init__()
            self.library = None

    matrix = run_matrix([Producer], [Unknown], lab=lab, aspects=["values"], ways=["convert"])
    (cell,) = matrix.cells
    assert cell["values"] == Aspect("none", "convert() does not know the consumer")


def test_a_host_that_waits_in_the_making_of_an_array_is_told(lab):
    class Waits(simulated.Consumer):
        name = "waits"

        def convert(self, x, stream, *, readonly=None):
            made = super().convert(x, stream, readonly=readonly)
            self.current.synchronize()
            return made

    matrix = run_matrix([OldDict], [Waits, Heedless], lab=lab, ways=["convert"])
    for name, outcome in (("waits", "waits"), ("heedless", "right")):
        cell = matrix.cell("old dict", name, CONVERT)
        assert (cell["handover"].outcome, cell["host"].outcome) == (outcome, outcome)


def test_convert_is_judged_by_the_values_that_are_read(lab):
    class Hasty(Heedless):
        name = "hasty"

        def convert(self, x, stream, *, readonly=None):
            return self.take(x)

    matrix = run_matrix([OldDict], [Hasty], lab=lab, ways=["convert"])
    (cell,) = matrix.cells
    assert cell["release"].outcome == "wrong"
    assert cell["readonly"].outcome == "wrong"


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
