"""Prepare: bring functions to the normal form that the rules of backends match.

Reads    any module.
Writes   the Relax functions, with all pure bindings in dataflow blocks; branches of an ``If`` as private functions,
         unless values have virtual devices; ``collage.unrecognised`` where a rule matched the beginning of its form but
         did not apply, for explanations; ``collage.changes`` where a function calls one that changes its parameters.
Keeps    names, parameters and results of functions; numbers, up to the rounding of reassociated sums and products;
         the memory that a function changes in place, which becomes no constant, and what is read before a change;
         PrimFuncs, and functions with ``Primitive``, ``Composite`` or ``Codegen``, which are grouped already.

The normal form, by the file of ``unity_collage.rewrites`` that makes it:

* ``dimensions``: tensors of known rank have symbolic dimensions, where their shapes are not known.
* ``constants``: known values are constants. ``identity``: no operator returns its operand. Equal values are computed
  once, and unused ones never.
* ``views``: at most one ``reshape`` or ``permute_dims`` in a row, and no other operators for views; unit axes stay in
  place; rows of a product are not reshaped before and after it.
* ``slices``: at most one ``strided_slice`` in a row, also for ``take`` by a number and for pools of one element; none
  before a 1x1 convolution, which can have strides. ``padding``: ``nn.pad`` only where no window can include it.
* ``arithmetic``: a constant is the right operand, at most one in a row; no subtraction of a constant; ``square(x)``
  for ``x * x``, ``x * 2`` for ``x + x``. ``sums``: chains of binary ``add``.
* ``affine``, ``batch_norm``: ``add(conv(x, w), bias)`` and ``add(matmul(x, w), bias)`` without a factor after it;
  elsewhere one ``multiply`` and one ``add``. ``one_convolution``: no sum of convolutions of one input.
* ``clip``: bounds are ``clip(x, low, high)``, infinite where there is none, or ``nn.relu``.
* ``activations``: ``nn.gelu``, ``nn.gelu_tanh``, ``nn.silu``, ``sigmoid``, ``nn.leakyrelu``; hard-sigmoid is
  ``clip(add(multiply(x, a), b), 0, 1)``, hard-swish ``multiply(x, hard-sigmoid of x)``.
* ``reductions``: axes count from the front; ``mean(x, [2, 3], keepdims=True)`` for any pool over the image;
  ``nn.softmax``, ``nn.log_softmax``. ``layer_norm``: ``nn.layer_norm`` with its factor and summand;
  ``rms_norm``: ``nn.rms_norm`` with its factor.
* ``quantised``: bytes are moved, not dequantised and quantised again; a function of one byte is a table.
* ``attention``, ``split``: a factor of the scores is in the weights, else ``multiply(matmul(q, k), number)``;
  query, key and value are separate products. ``shared_heads``: keys and values are not repeated for the heads that
  share them; on GPUs only for single rows.

A form without an operator in Relax stays a chain: LRN is ``square, reshape, avg_pool3d, reshape, multiply, add, power,
divide``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import UNRECOGNISED
from ..graph.calls import op_name
from ..graph.devices import used
from ..graph.equal_constants import with_equal_shared
from ..graph.in_place import with_changes_noted
from ..graph.variants import is_switch
from ..rewrites import DEFAULT_REWRITES, SHARED_HEADS, Rewrite, near_misses, rewrite_function, with_own_names
from ..rewrites.branches import with_branches_outlined
from ..rewrites.dimensions import with_dimensions, with_kernels_of_unknown_size
from ..rewrites.flat_casts import with_flat_casts
from ..target import is_cuda

_FINISHED = ("Primitive", "Composite", "Codegen")

_Functions = dict[ir.GlobalVar, relax.Function]


@tvm.transform.module_pass(opt_level=0, name="collage.Prepare")
@dataclass(frozen=True)
class Prepare:
    """Bring every Relax function to the normal form: apply rules until none matches."""

    rules: tuple[Rewrite, ...] = DEFAULT_REWRITES
    """The rewrites, in the order in which they are tried at a binding."""

    params: Mapping[str, np.ndarray | tvm.runtime.Tensor] = field(default_factory=dict)
    """Weights for parameters of ``main``, by name."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        given = relax.transform.BindParams("main", {**self.params})(mod) if self.params else mod
        bound = with_kernels_of_unknown_size(given)
        before = dict(bound.functions_items())
        ours = {
            gvar: func
            for gvar, func in before.items()
            if isinstance(func, relax.Function) and why_left_alone(func) is None
        }
        formed = self._normal_forms(ours, bound).items()
        changed = {gvar: with_changes_noted(func, bound) for gvar, func in formed}
        after = with_equal_shared(before | changed, before)
        orphans = _called(before) - _called(after)
        kept = {gvar: func for gvar, func in after.items() if gvar not in orphans or not _is_private(func)}
        return IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)

    def _normal_forms(self, ours: _Functions, mod: IRModule) -> _Functions:
        """The functions, and those of their branches, in the normal form."""
        rules = _for_target(self.rules)
        known = normal_forms(ours, rules, mod)
        if used(mod):
            return known
        # Behind the first step, which finds the sizes that a branch shares with its function.
        outlined = with_branches_outlined(IRModule({**dict(mod.functions_items()), **known}), known)
        ours = {gvar: func for gvar, func in outlined.functions_items() if isinstance(func, relax.Function)}
        changed = {gvar: ours[gvar] for gvar in known}
        branches = {gvar: func for gvar, func in ours.items() if gvar not in mod.functions}
        return {**changed, **normal_forms(branches, rules, outlined)} if branches else known


def _for_target(rules: tuple[Rewrite, ...]) -> tuple[Rewrite, ...]:
    """``rules`` without those whose form is slower on the target in scope."""
    target = tvm.target.Target.current(allow_none=True)
    left_out = (SHARED_HEADS,) if target is not None and is_cuda(target) else ()
    return tuple(rule for rule in rules if rule not in left_out)


def why_left_alone(func: ir.BaseFunc) -> str | None:
    """Why a function does not change, or None when it is brought to the normal form."""
    if not isinstance(func, relax.Function):
        return "not a Relax function"
    for name in _FINISHED:
        if func.attrs is not None and name in func.attrs:
            return f"it carries {name}: it has been grouped or outlined already"
    return "it only chooses a variant" if is_switch(func) else None


def normal_forms(functions: _Functions, rules: tuple[Rewrite, ...], mod: IRModule) -> _Functions:
    """Each function in the normal form; they may call functions of ``mod``."""
    flows = _each(relax.transform.ConvertToDataflow(min_size=1), functions)
    rewritten = {gvar: rewrite_function(func, rules, mod) for gvar, func in flows.items()}
    inference = {gvar: func for gvar, func in rewritten.items() if not _trains(func)}
    decomposed = _each(relax.transform.DecomposeOpsForInference(), inference)
    again = {gvar: rewrite_function(func, rules, mod) for gvar, func in decomposed.items()}
    known = {gvar: _dimensioned(func, rules, mod) for gvar, func in (rewritten | again).items()}
    tidy = _each(relax.transform.CanonicalizeBindings(), known)
    named = {
        gvar: with_own_names(with_flat_casts(relax.analysis.remove_all_unused(func)))
        for gvar, func in tidy.items()
    }
    return {gvar: _with_near_misses(func, rules, mod) for gvar, func in named.items()}


def _dimensioned(func: relax.Function, rules: tuple[Rewrite, ...], mod: IRModule) -> relax.Function:
    """``func`` with symbolic dimensions where shapes are still unknown, and rewritten again with these."""
    known = with_dimensions(func, mod)
    if known.same_as(func):
        return func
    (flow,) = _each(relax.transform.ConvertToDataflow(min_size=1), {ir.GlobalVar("main"): known}).values()
    return rewrite_function(flow, rules, mod)


def _with_near_misses(func: relax.Function, rules: tuple[Rewrite, ...], mod: IRModule) -> relax.Function:
    found = near_misses(func, rules, mod)
    if found:
        return UNRECOGNISED.write(func, found)
    return func.without_attr(UNRECOGNISED.name) if UNRECOGNISED.on(func) else func


def _each(change: tvm.transform.Pass, functions: _Functions) -> _Functions:
    """The result of a pass of TVM for these functions alone; it does not see the others."""
    changed = change(IRModule(functions)).functions_items()
    return {gvar: func for gvar, func in changed if isinstance(func, relax.Function)}


def _trains(func: relax.Function) -> bool:
    """Whether a batch norm computes its statistics from the batch, which TVM's decomposition does not consider."""
    return any(
        isinstance(expr, relax.Call) and op_name(expr) == "relax.nn.batch_norm" and expr.attrs.training
        for expr in _expressions(func)
    )


def _called(functions: Mapping[ir.GlobalVar, ir.BaseFunc]) -> set[ir.GlobalVar]:
    """Every function that a Relax function mentions."""
    return {
        expr
        for func in functions.values()
        if isinstance(func, relax.Function)
        for expr in _expressions(func)
        if isinstance(expr, ir.GlobalVar)
    }


def _is_private(func: ir.BaseFunc) -> bool:
    return func.attrs is None or "global_symbol" not in func.attrs


def _expressions(func: relax.Function) -> list[relax.Expr]:
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(func, found.append)
    return found
