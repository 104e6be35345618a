"""ToPrecision: give products 16-bit operands, and store the values between them in 16 bits.

Reads    the operators; run Prepare and ChannelsLast before.
Writes   ``astype`` where a value is stored or read, so that kernels can include it and it has a cost; products of
         narrow operands with a float32 result (``out_dtype``); narrow constants.
Keeps    parameters and results of every function; float32 arithmetic of everything but the factors of products, unless
         whole networks are narrowed; every function that :func:`~.channels_last.why_left_alone` names a reason for.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..errors import CollageError
from ..graph.equal_constants import with_equal_shared
from ..precision.rewrite import rewritten
from ..precision.whole import rewritten_whole
from ..target import current_target
from .channels_last import why_left_alone

NARROW = ("bfloat16", "float16")
"""The types that values can be stored in."""

WHOLE, GPU = "float16", "cuda"
"""The type that whole networks are narrowed to, and the kind of target that has kernels for it."""


@tvm.transform.module_pass(opt_level=0, name="collage.ToPrecision")
@dataclass(frozen=True)
class ToPrecision:
    """Convolutions and matrix products read ``dtype``, add up in float32, and write ``dtype``.

    conv(x, w) + b -> relu -> conv    becomes    astype(relu(conv(x', w') + b)) -> conv, with x', w' in ``dtype``

    A value that is computed from one product and read by another is rounded once, where it is stored. A value that only
    an element-wise operator reads is expected to stay in a register. Softmax, normalizations and reductions read narrow
    values and compute in float32. Nothing else changes: a model without two products in a row keeps float32 results.
    """

    dtype: str = "bfloat16"
    """The type of operands of products, and of stored values."""
    whole: bool | None = None
    """Whether all operators that are safe in 16 bits also read and write float16, as libraries for GPUs do.

    conv(x, w) + b -> relu    becomes    relu(conv(x', w') + b'), all in float16

    Products then have a narrow result, and kernels add up in float32 inside. None means True for float16, which then
    needs a GPU as target, and False for other types.
    """

    def __post_init__(self) -> None:
        if self.dtype not in NARROW:
            raise CollageError(f"values cannot be stored in {self.dtype}, only in {', '.join(NARROW)}")
        if self.whole and self.dtype != WHOLE:
            raise CollageError(f"whole networks are narrowed to {WHOLE} only, not to {self.dtype}")

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        before = dict(mod.functions_items())
        functions = with_equal_shared({gvar: self._narrowed(func) for gvar, func in before.items()}, before)
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)

    def _narrowed(self, func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
        if not isinstance(func, relax.Function) or why_left_alone(func) is not None:
            return func
        return (rewritten_whole if self._is_whole() else rewritten)(func, self.dtype)

    def _is_whole(self) -> bool:
        if self.whole is not None:
            return self.whole
        kind = current_target().kind.name
        if self.dtype == WHOLE and kind != GPU:
            raise CollageError(f"{WHOLE} is for GPUs ({GPU}), and the target is {kind}: use bfloat16 (bf16)")
        return self.dtype == WHOLE
