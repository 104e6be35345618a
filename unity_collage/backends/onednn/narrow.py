"""Targets for which oneDNN 3.2 has no bfloat16, and lowerings that decline it.

On x86 its kernels need AVX-512 or the instructions that convert bfloat16; there are no reference kernels either, so a
primitive cannot be made at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from tvm.target import Target, codegen

from ..native.casts import NARROW
from ..native.program import NativeStep

_Args = ParamSpec("_Args")
_X86, _FEATURES = "sse2", ("avx512bw", "avxneconvert")


def has_narrow(target: Target) -> bool:
    """Whether oneDNN has kernels for bfloat16 on a target."""
    has = codegen.target_has_features
    return not has(_X86, target) or any(has(feature, target) for feature in _FEATURES)


def only_wide(lowering: Callable[_Args, NativeStep | str]) -> Callable[_Args, NativeStep | str]:
    """``lowering`` that declines steps which read or write bfloat16."""

    def checked(*args: _Args.args, **named: _Args.kwargs) -> NativeStep | str:
        made = lowering(*args, **named)
        if isinstance(made, NativeStep) and any(view.dtype == NARROW for view in made.views()):
            return f"oneDNN has no {NARROW} for processors without AVX-512"
        return made

    return checked
