"""Plain calls of an operator: straight to its function, past PyTorch's dispatcher.

The dispatcher reports a call to everything that follows calls: autograd, transforms, modes, a
trace, a profiler. If nothing follows, and all tensors are of the usual kind, it only looks up the
operator's function. The dispatcher takes 4 to 5 us, and the question whether anything follows takes
1.5 us (PyTorch 2.11 and 2.15, a CPU, 2026-11-28).
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._compiled_schema import Schema

__all__ = ["any_requires_grad", "below_autograd", "direct", "is_dual", "is_followed", "is_forward"]

KINDS = {"Tensor": torch.Tensor, "float": float, "int": int, "bool": bool, "str": str}
"""The types that the dispatcher passes unchanged, by their names in schemas."""
DEVICES = {"cpu", "cuda"}

NAMES = (
    *("_dispatch_keys", "_dispatch_tls_local_include_set", "_len_torch_function_stack"),
    *("_is_any_autocast_enabled", "_any_requires_grad", "_AutoDispatchBelowAutograd"),
    "_are_functorch_transforms_active",
)
ASKED: dict[str, Any] = {name: getattr(torch._C, name, None) for name in NAMES}
"""The functions that PyTorch's own Python operators ask. Without one, all calls are dispatched."""


below_autograd: Any = ASKED["_AutoDispatchBelowAutograd"] or torch.no_grad
"""The context in which PyTorch runs an operator's function."""


def is_followed(args: tuple[Any, ...]) -> bool:
    """Return whether autograd, `torch.func` or forward mode follows a call, or may follow it."""
    if _transforms is None or _transforms() or getattr(forward_ad, "_current_level", 0) >= 0:
        return True
    return torch.is_grad_enabled() and any_requires_grad(args)


def any_requires_grad(args: tuple[Any, ...]) -> bool:
    """Return whether autograd follows a tensor among the arguments."""
    return any(isinstance(one, torch.Tensor) and one.requires_grad for one in args)


def is_forward() -> bool:
    """Return whether forward mode is on. Dynamo can trace this function."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def is_dual(x: Any) -> bool:
    """Return whether an argument has a tangent of forward mode."""
    if not is_forward() or not isinstance(x, torch.Tensor):
        return False
    return forward_ad.unpack_dual(x).tangent is not None


_transforms = ASKED["_are_functorch_transforms_active"]


def direct(schema: Schema) -> Callable[[tuple[Any, ...]], bool]:
    """Return a function that tells, by a call's arguments, whether it may skip the dispatcher."""
    kinds = [KINDS.get(kind) for kind in schema.kinds]
    profiled = getattr(torch.autograd, "_profiler_enabled", None)
    if None in kinds or None in ASKED.values() or profiled is None:
        return lambda _: False
    keys, included, functions, casts, follows = (ASKED[name] for name in NAMES[:5])
    places = [at for at, is_tensor in enumerate(schema.tensors) if is_tensor]
    tensor, parameter = torch.Tensor, torch.nn.Parameter
    usual, follows_gradients, idle = _USUAL, torch.is_grad_enabled, _idle()

    def is_direct(args: tuple[Any, ...]) -> bool:
        for one, kind in zip(args, kinds, strict=True):
            # The dispatcher converts any other type to this one, or refuses it.
            if type(one) is not kind and not (kind is tensor and type(one) is parameter):
                return False
        if included().raw_repr() not in idle or functions() or casts() or profiled():
            return False
        if getattr(forward_ad, "_current_level", 0) >= 0:
            return False
        if follows_gradients() and follows(*args):
            return False
        for at in places:
            bits = keys(args[at]).raw_repr()
            if not (usual[bits] if bits in usual else _is_usual(args[at], bits)):
                return False
        return True

    return is_direct


def _idle() -> set[int]:
    """Return the dispatch keys that every thread includes while nothing follows its calls."""
    key, keys = torch._C.DispatchKey, torch._C.DispatchKeySet
    in_inference = keys(key.BackendSelect)
    return {in_inference.raw_repr(), (in_inference | keys(key.ADInplaceOrView)).raw_repr()}


_USUAL: dict[int, bool] = {}
"""For a tensor's dispatch keys, whether they are those of a new tensor."""


def _is_usual(x: torch.Tensor, bits: int) -> bool:
    """Return whether a tensor is like a new one on its device: not conjugate, batched or sparse."""
    asked = ASKED["_dispatch_keys"]
    is_usual = False
    if x.device.type in DEVICES:
        for in_inference in (False, True):
            with torch.inference_mode(in_inference):
                is_usual |= asked(torch.empty(0, device=x.device)).raw_repr() == bits
    _USUAL[bits] = is_usual
    return is_usual
