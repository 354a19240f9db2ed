"""That ends which follow from one another need no stack, however many they are."""

import pytest
from children import assert_quiet

# 5,000 ends one inside the other would have 52 bytes of this stack each.
PRELUDE = """
    import gc, sys, threading
    from cai_bridge import _core, from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
    cuda = simulated_cuda(check=False).__enter__()
    x, many = cuda.array([1.0] * 4, speaks="dlpack"), 5_000

    def on_a_small_stack(call):
        threading.stack_size(256 * 1024)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        assert x.exports == 0, x.exports
"""
VIEWS_OF_CAPSULES = """
        view = to_cai(x)
        for _ in range(many):
            view = to_cai(from_cai(view).__dlpack__())
"""
ENDS = {
    "views that wait for the same work": """
        mine, other = cuda.stream("mine"), cuda.array([1.0])
        mine.fill(other, 2.0)
        for _ in range(many):
            to_cai(x, stream=mine)
        assert x.exports == many
        cuda.synchronize()
        on_a_small_stack(_core._settle)
    """,
    "a view of a capsule of a view": VIEWS_OF_CAPSULES
    + """
        held = [view]
        del view
        on_a_small_stack(held.clear)
    """,
    "a view of a dict whose owner is a view": """
        view = to_cai(x)
        for _ in range(many):
            view = to_cai(from_cai(view.__cuda_array_interface__, owner=view).__dlpack__())
        held = [view]
        del view
        on_a_small_stack(held.clear)
    """,
    "a capsule that nobody takes": """
        capsule = from_cai(to_cai(x)).__dlpack__()
        for _ in range(many):
            capsule = from_cai(to_cai(capsule)).__dlpack__()
        held = [capsule]
        del capsule
        on_a_small_stack(held.clear)
    """,
    "a view that is released": VIEWS_OF_CAPSULES
    + """
        on_a_small_stack(view.release)
    """,
    "views in a cycle": VIEWS_OF_CAPSULES
    + """
        cycle = [view]
        cycle.append(cycle)
        del view, cycle
        on_a_small_stack(gc.collect)
    """,
    "views whose ends are orders": """
        mine, view = cuda.stream("mine"), to_cai(x)
        for _ in range(many // 5):
            view = to_cai(from_cai(view).__dlpack__(stream=mine), stream=mine)
        held = [view]
        del view
        def end():
            while x.exports:
                held.clear()
                cuda.synchronize()
                _core._settle()
        on_a_small_stack(end)
    """,
}


@pytest.mark.parametrize("end", ENDS)
def test_many_ends_need_no_more_stack_than_one(end):
    assert_quiet(ENDS[end], prelude=PRELUDE)
