"""A lowered program makes each shape with free sizes once in a call, in place of once for each tensor.

    shape = make_shape(heap, n, 256); a = alloc_tensor(storage, 0, shape, "float32")
    again = make_shape(heap, n, 256); b = alloc_tensor(other, 0, again, "float32")
        ->  shape = make_shape(heap, n, 256); a = alloc_tensor(storage, 0, shape, "float32")
                                              b = alloc_tensor(other, 0, shape, "float32")

TVM's VMShapeLower writes a size to one place of its heap, once, before it is read. So calls with the same places and
numbers make equal shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule

_MAKE = "vm.builtin.make_shape"

Key = tuple[Any, ...]


@tvm.transform.module_pass(opt_level=0, name="VMShapeLower")
@dataclass(frozen=True)
class ShareShapes:
    """The pass ``step``, which makes shapes, and equal ones only once behind it."""

    step: tvm.transform.Pass

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        lowered = self.step(mod)
        functions = {
            gvar: _shared(func) if isinstance(func, relax.Function) else func
            for gvar, func in lowered.functions_items()
        }
        return IRModule(functions, attrs=lowered.attrs, global_infos=lowered.global_infos)


def _shared(func: relax.Function) -> relax.Function:
    first: dict[relax.Var, relax.Var] = {}
    assert isinstance(func.body, relax.SeqExpr)
    body = _once(func.body, {}, first)
    if not first:
        return func
    changed = relax.Function(
        func.params, body, func.ret_ty, is_pure=func.is_pure, attrs=func.attrs, span=func.span
    )
    renamed: Any = tvm_ffi.structural_map(changed, (relax.Var, lambda var: first.get(var, var)))
    return renamed


def _once(
    seq: relax.SeqExpr, known: dict[Key, relax.Var], first: dict[relax.Var, relax.Var]
) -> relax.SeqExpr:
    """``seq`` without bindings of shapes that are in ``known``: ``first`` gets what takes their place.

    A branch knows the shapes that were made before it, and those behind it do not know its own.
    """
    blocks: list[relax.BindingBlock] = []
    for block in seq.blocks:
        bindings: list[relax.Binding] = []
        for binding in block.bindings:
            value, key = binding.value, _key(binding)
            if key is not None and key in known:
                first[binding.var] = known[key]
                continue
            if key is not None:
                known[key] = binding.var
            if isinstance(value, relax.If):
                branches = [
                    _once(branch, dict(known), first) for branch in (value.true_branch, value.false_branch)
                ]
                binding = relax.VarBinding(binding.var, relax.If(value.cond, *branches, span=value.span))
            bindings.append(binding)
        blocks.append(relax.BindingBlock(bindings))
    return relax.SeqExpr(blocks, seq.body)


def _key(binding: relax.Binding) -> Key | None:
    """What the shape depends on that a binding makes; None for other bindings."""
    value = binding.value
    if not isinstance(binding, relax.VarBinding) or not isinstance(value, relax.Call):
        return None
    if not isinstance(value.op, relax.ExternFunc) or str(value.op.global_symbol) != _MAKE:
        return None
    heap, *numbers = value.args
    found = [int(each.value) for each in numbers if isinstance(each, tirx.IntImm)]
    return (heap, *found) if isinstance(heap, ir.Var) and len(found) == len(numbers) else None
