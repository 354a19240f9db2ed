"""That ends which follow from one another need no stack, however many they are."""

import pytest
from children import assert_quiet

# 5,000 ends one inside the other would have 52 bytes of this stack each.
SMALL = """
    import gc
    from cai_bridge import _core
    cuda = simulated_cuda(check=False).__enter__()
    x, many, held = cuda.array([1.0] * 4, speaks="dlpack"), 5_000, []
    mine = cuda.stream("mine")

    def on_a_small_stack(call):
        threading.stack_size(256 * 1024)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        assert x.exports == 0, x.exports

    def chain(more, many=many):
        view = to_cai(x)
        for _ in range(many):
            view = more(view)
        return view

    def of_capsules(view):
        return to_cai(from_cai(view).__dlpack__())
"""
CHAINS = {
    "a view of a capsule of a view": "of_capsules",
    "a view of a dict whose owner is a view": (
        "lambda v: to_cai(from_cai(v.__cuda_array_interface__, owner=v).__dlpack__())"
    ),
    "a capsule that nobody takes": "lambda capsule: from_cai(to_cai(capsule)).__dlpack__()",
}
ENDS = {
    "views that wait for the same work": """
        mine.fill(cuda.array([1.0]), 2.0)
        for _ in range(many):
            to_cai(x, stream=mine)
        assert x.exports == many
        cuda.synchronize()
        on_a_small_stack(_core._settle)
    """,
    **{
        name: f"held.append(chain({more}))\non_a_small_stack(held.clear)"
        for name, more in CHAINS.items()
    },
    "a view that is released": "on_a_small_stack(chain(of_capsules).release)",
    "views in a cycle": """
        held = [chain(of_capsules)]
        held.append(held)
        del held
        on_a_small_stack(gc.collect)
    """,
    "views whose ends are orders": """
        held.append(chain(lambda v: to_cai(from_cai(v).__dlpack__(stream=mine), stream=mine), 1000))
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
    assert_quiet(SMALL, ENDS[end])
