"""`cai-bridge perturb` names a race, or none, where runs are not alike, are slow, or do not end."""

import sys
import textwrap

import pytest
from perturbing import TWO, driver, needs, run, sides

from cai_bridge._cli import bisecting, perturbed
from cai_bridge._cli.perturbed import Program
from cai_bridge._cli.schedule import Schedule

__all__ = ["driver", "run"]

pytestmark = needs

THE_TWO = ['launch("fill", a, x, i)', 'launch("copy", b, y, x)']

# How many runs there were before, which decides with OFTEN what this one does.
COUNTED = """
    import os, pathlib, time
    count = pathlib.Path(__file__).with_name("count")
    number = int(count.read_text()) if count.exists() else START
    count.write_text(str(number + 1))
    now = "OFTEN"[number % len("OFTEN")] == "1"
"""
BY_ITSELF = f"""{COUNTED}
    mode, free = (os.environ.get("CAI_BRIDGE_PERTURB_" + one) for one in ("MODE", "FREE"))
    first, end = map(int, (free or "0-9").split("-"))
    may = mode == "late" and first == 0 and end > LAST
    {TWO}
    for i in range(1, 4):
        launch("fill", a, x, i)
        launch("copy", b, y, x)
        print(-1 if may and i == 1 and now else read(y, b))
        order(b, a)
    """


@pytest.mark.parametrize("often", ["01", "00000010000"])
@pytest.mark.parametrize("start", [1, 3])
def test_what_differs_by_itself_as_well_is_named_right_or_not_at_all(start, often, run):
    """As on a GPU with other work: every second run is wrong by itself, or one in eleven."""
    program = BY_ITSELF.replace("LAST", "1").replace("START", str(start)).replace("OFTEN", often)
    _, found = run(program, named=True)
    assert found["race"] or often == "01", found
    assert ("could not be named" in found["conclusion"]) == (found["race"] is None)
    if race := found["race"]:
        assert sides(found) == THE_TWO, race


BESIDE = (
    BY_ITSELF.replace("LAST", "2")
    .replace(TWO, f"{TWO}\n    c, z = stream(), word()")
    .replace('        launch("copy"', '        launch("fill", c, z, i)\n        launch("copy"')
    .replace("order(b, a)", "order(b, a)\n        order(b, c)")
)


@pytest.mark.parametrize(("start", "often"), [(3, "01000011100110101"), (2, "11101100011")])
def test_what_differs_by_itself_takes_no_work_beside_it_for_the_late_one(start, often, run):
    _, found = run(BESIDE.replace("START", str(start)).replace("OFTEN", often), named=True)
    if race := found["race"]:
        assert sides(found) == THE_TWO, race


SLOW = f"""{COUNTED}
    {TWO}
    for i in range(1, 4):
        launch("fill", a, x, i)
        if now: time.sleep(0.04)
        launch("copy", b, y, x)
        print(read(y, b))
        order(b, a)
    """


# Those in which the run under seed 1, the fourth, is not a slow one.
@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("start", "often"),
    [
        *((1, "01"), (0, "0010"), (1, "0010"), (2, "0010"), (0, "0000100"), (2, "0000100")),
        *((0, "0100000010010"), (0, "000001111"), (2, "000000010100")),
    ],
)
def test_where_the_host_is_slower_than_what_is_late_it_is_later(start, often, run):
    """As beside other processes: in some runs the delay is over before the second one comes."""
    program = SLOW.replace("START", str(start)).replace("OFTEN", often)
    status, found = run(program, named=True)
    assert status == 1, found
    assert found["race"], found
    assert sides(found) == THE_TWO, found["race"]


@pytest.mark.usefixtures("run")
def test_a_program_that_waits_for_itself_while_it_is_named_is_ended(tmp_path, monkeypatch):
    """And no run that was ended for its time is an answer."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import os, time
            from soft import *
            {TWO}
            if os.environ.get("CAI_BRIDGE_PERTURB_STACKS"):
                time.sleep(100)
            for i in range(1, 4):
                launch("fill", a, x, i)
                launch("copy", b, y, x)
                print(read(y, b))
                order(b, a)
            """
        )
    )
    monkeypatch.setattr(perturbed, "_PATIENCE", (1, 1))
    asked = Program((sys.executable, str(program)), delay=0.02)
    reference = perturbed.run(asked, "serial")
    with pytest.raises(bisecting.UnnamedError, match=r"run \d+ of it was ended after \d s"):
        bisecting.bisect(asked, reference, [Schedule(seed=0), Schedule(seed=1)], lambda _: None)
