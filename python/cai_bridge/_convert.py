"""`convert`: an array, or a whole tree of them, as the arrays of another library."""

from __future__ import annotations

from typing import Any

from . import _libraries, _trees
from ._core import DLPackView, _convert, to_dlpack
from ._libraries import Library

__all__ = ["convert", "convert_leaves"]


def convert(
    x: Any,
    to: Any,
    *,
    stream: Any = None,
    copy: bool | None = None,
    readonly: bool | None = None,
    detach: bool = False,
) -> Any:
    """Give an array of any library as one of another, over the same memory.

    The array is usable on the stream that its library works on now, or on `stream`: the host does
    not wait (but for NumPy, which copies to the host). It keeps the producer alive, and at its end
    the producer's stream waits for the consumer's.

    Parameters
    ----------
    x : object
        An array that speaks DLPack or the CUDA Array Interface, or a tree of them: lists, tuples,
        named tuples, dicts, dataclasses, and what JAX or PyTorch were told are containers. A tree
        comes back in its shape; what is no array on a GPU stays as it is. One event orders all
        arrays of a stream, and either all are converted or none.
    to : module, str or type
        The library: ``cupy``, ``"torch"``, or the type of its arrays, such as ``jax.Array``;
        ``"cai"`` and ``"dlpack"`` give a `CaiView` and a `DLPackView`. Known are torch, cupy,
        numba, jax, cuda (cuda.core), tvm_ffi and numpy; `register` adds others.
    stream : None, int or stream object, optional
        The stream to use the array on, as in `to_cai`; None for the library's current one. Numba's
        is its default stream.
    copy : bool, optional
        True makes a copy in memory of the bridge's own; False refuses where there has to be one.
    readonly : bool, optional
        True hands out read-only memory; with False the caller vouches that writing is right.
    detach : bool, optional
        Detach tensors that require a gradient, which are refused otherwise.

    Returns
    -------
    object
        The array, or the tree; `x` itself where it is an array of `to` already.

    Raises
    ------
    BufferError
        The other library's protocol cannot express the array, it is read-only and the library may
        write to it, or it is not in CUDA's reach.
    ValueError, TypeError, DriverError
        As in `to_cai`. Of a tree the message names the array: ``x["mask"][2]``.

    Notes
    -----
    DLPack 1.3, "Python Specification"; CUDA Array Interface (Version 3), "Synchronization".
    """
    library = _libraries.find(to)
    if isinstance(x, library.types):
        return _own([x], library, stream, copy, readonly)[0]
    if _trees.is_tree(x):
        return _tree(x, library, stream=stream, copy=copy, readonly=readonly, detach=detach)
    if detach:
        x = _detached(x)
    if copy is not None:
        x = _copied(x, library, copy)
    return library.convert([x], stream, readonly)[0]


def _tree(x: Any, library: Library, **how: Any) -> Any:
    leaves: list[_trees.Leaf] = []
    rebuild = _trees.plan(x, "x", leaves)
    return rebuild(iter(convert_leaves(leaves, library, **how)))


def convert_leaves(
    leaves: list[_trees.Leaf],
    library: Library,
    *,
    stream: Any = None,
    copy: bool | None = None,
    readonly: bool | None = None,
    detach: bool = False,
) -> list[Any]:
    """Convert the arrays of a tree, all or none; what is refused says where it was."""
    own = [isinstance(leaf.array, library.types) for leaf in leaves]
    foreign = [leaf for leaf, is_own in zip(leaves, own, strict=True) if not is_own]
    mine = [leaf.array for leaf, is_own in zip(leaves, own, strict=True) if is_own]
    item = len(foreign)
    try:
        arrays = [_detached(leaf.array) if detach else leaf.array for leaf in foreign]
        if copy is not None:
            for item, array in enumerate(arrays):
                arrays[item] = _copied(array, library, copy)
            item = len(foreign)
        made = iter(library.convert(arrays, stream, readonly))
    except Exception as error:
        item = error.__dict__.pop("_cai_bridge_item", item)
        if item < len(foreign):
            _say_where(error, foreign[item].path)
        raise
    kept = iter(_own(mine, library, stream, copy, readonly))
    return [next(kept if is_own else made) for is_own in own]


def _own(
    arrays: list[Any], library: Library, stream: Any, copy: bool | None, readonly: bool | None
) -> list[Any]:
    """Give arrays of the library itself as they are, ordered if a stream is said, or copied."""
    if copy:
        return library.convert(
            [_copied(array, library, copy) for array in arrays], stream, readonly
        )
    if stream is not None and library.name != "numpy":
        ordered = [_detached(array) for array in arrays]
        for view in _convert(ordered, DLPackView, stream, None, None, False):
            # The arrays stay their library's: nothing is given back.
            view.release(-1)
    return arrays


def _copied(x: Any, library: Library, copy: bool) -> Any:
    """Give a capsule with a copy of `x`; `x` itself where none is asked for."""
    if library.name == "numpy":
        if not copy:
            raise ValueError(
                "copy: got False; allowed: None or True, for NumPy's arrays are the host's"
            )
        return x
    if not copy:
        return x
    return to_dlpack(x).__dlpack__(stream=1, max_version=(1, 3), copy=True)


def _detached(x: Any) -> Any:
    return x.detach() if getattr(x, "requires_grad", False) else x


def _say_where(error: Exception, path: str) -> None:
    """Put the place of an array in front of what is wrong with it."""
    if error.args and isinstance(error.args[0], str):
        error.args = (f"{path}: {error.args[0]}", *error.args[1:])
    else:
        error.add_note(f"at {path}")
