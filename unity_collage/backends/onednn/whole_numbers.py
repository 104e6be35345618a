"""Products of bytes: exact sums of 32 bits, on processors that add four products of bytes in one instruction.

Without it oneDNN 3.2 adds pairs of products in 16 bits, which may saturate: the sums would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from tvm.target import Target, codegen

from ..native.program import NativeStep

_Args = ParamSpec("_Args")
BYTES = frozenset({"int8", "uint8"})
WEIGHTS, SUMS = "int8", "int32"
"""The element types of the weights and of the result."""
_FEATURES = ("avx512vnni", "avxvnni")


def has_products_of_bytes(target: Target) -> bool:
    """Whether a target has instructions that multiply bytes and add in 32 bits."""
    return any(codegen.target_has_features(feature, target) for feature in _FEATURES)


def without_bytes(lowering: Callable[_Args, NativeStep | str]) -> Callable[_Args, NativeStep | str]:
    """``lowering`` that declines steps which read bytes."""

    def checked(*args: _Args.args, **named: _Args.kwargs) -> NativeStep | str:
        made = lowering(*args, **named)
        if isinstance(made, NativeStep) and any(view.dtype in BYTES for view in made.views()):
            return "products of bytes may saturate on processors without VNNI"
        return made

    return checked
