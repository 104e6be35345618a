"""The switch between variants in a lowered program: it compares the shapes of all operands at once.

TVM's VMShapeLower writes sizes to memory and reads them for each condition. Each variant checks its operands again::

    before                                      after
    main(x):                                    main(x):
        check_tensor_info(x, ...)                   check_tensor_info(x, ...)
        match_shape(x, heap, ...)                   if fits_main_n_1(x):
        if n_is_1(make_prim_value(heap, ...)):          main_n_1(x)
            main_n_1(x)                             else:
        else:                                           match_shape(x, heap, ...)
            main_any_size(x)                            main_any_size(x)

``fits_main_n_1`` is a PrimFunc. Tensors that fit a variant are operands that ``main`` accepts, so nothing is left to
check. For all others ``main`` checks what it checked before, with the same errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import tvm
from tvm import ir, relax, sym, tirx
from tvm.ir import IRModule

from ..graph.calls import op_name
from ..graph.free_sizes import substituted
from ..graph.shapes import shape_of
from ..graph.variants import called_by_switch, sizes_of
from .outline import NameSupply, global_var

_INPUTS = "num_input"
"""TVM's attribute of a function: VMShapeLower does not check static parameters from this number on."""

_CHECK = "vm.builtin.check_tensor_info"
_RELEASE = "relax.vm.kill_object"
_SHAPE, _EXTENT = 2, 17
"""Numbers of ``tvm::tirx::builtin::TVMStructFieldKind``: the shape of a DLTensor, and an element of it."""

Shape = tuple[int, ...]


@tvm.transform.module_pass(opt_level=0, name="VMShapeLower")
@dataclass(frozen=True)
class ShapeSwitch:
    """TVM's pass of this name, and a switch that compares shapes.

    Functions with free sizes keep their checks of these, and the switch its conditions from the first of them on.
    """

    step: tvm.transform.Pass

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        called = _accepted_by_switch(mod)
        lowered = self.step(_trusting(mod, called))
        shapes: dict[str, list[Shape]] = {}
        for name in called[:-1]:
            static = [shape for param in mod[name].params if (shape := shape_of(param)) is not None]
            if len(static) < len(mod[name].params):
                break
            shapes[name] = static
        return _comparing(lowered, shapes) if shapes else lowered


def _accepted_by_switch(mod: IRModule) -> tuple[str, ...]:
    """The functions that the switch of ``mod`` calls, if they take nothing that it does not check; otherwise none."""
    main = next((func for gvar, func in mod.functions_items() if gvar.name_hint == "main"), None)
    if not isinstance(main, relax.Function) or _INPUTS in (main.attrs or {}):
        return ()
    called = called_by_switch(main)
    if called != tuple(name for name in _named(main) if isinstance(mod[name], relax.Function)):
        return ()
    return called if all(_takes_the_same(mod[name], main) for name in called) else ()


def _takes_the_same(func: ir.BaseFunc, main: relax.Function) -> bool:
    """Whether the parameters of a private ``func`` are tensors, of the types of ``main`` at the sizes of ``func``."""
    if not isinstance(func, relax.Function) or "global_symbol" in (func.attrs or {}):
        return False
    sizes = sizes_of(func)
    free = {var.name: var for param in func.params for var in relax.analysis.tir_vars_in_type(param.ty)}

    def here(var: ir.Var) -> ir.Expr:
        return tirx.IntImm("int64", sizes[var.name]) if var.name in sizes else free.get(var.name, var)

    return len(func.params) == len(main.params) and all(
        _are_equal(param.ty, substituted(given.ty, here))
        for param, given in zip(func.params, main.params, strict=True)
    )


def _are_equal(own: ir.Type, other: ir.Type) -> bool:
    """Whether both are types of tensors with the same shape, which is known, and of the same elements."""
    if not (isinstance(own, relax.TensorType) and isinstance(other, relax.TensorType)):
        return False
    if not (isinstance(own.shape, relax.ShapeExpr) and isinstance(other.shape, relax.ShapeExpr)):
        return False
    if str(own.dtype) != str(other.dtype) or len(own.shape.values) != len(other.shape.values):
        return False
    return all(map(sym.Analyzer().can_prove_equal, own.shape.values, other.shape.values))


def _trusting(mod: IRModule, called: Sequence[str]) -> IRModule:
    """``mod`` where these functions do not check parameters of static shapes."""
    functions = {
        gvar: func.with_attr(_INPUTS, 0) if gvar.name_hint in called else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _comparing(lowered: IRModule, shapes: Mapping[str, Sequence[Shape]]) -> IRModule:
    """``lowered`` where the switch compares the shapes of its operands with those of each variant, in this order."""
    gvar, names = lowered.get_global_var("main"), NameSupply(lowered)
    main = cast(relax.Function, lowered[gvar])
    made = [(names.fresh(f"fits_{name}"), _comparison(each)) for name, each in shapes.items()]
    comparisons = {global_var(name, func): func for name, func in made}
    body = _switched(
        main.body, [relax.Call(each, list(main.params), ret_ty="bool") for each in comparisons], []
    )
    switch = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    functions = {**dict(lowered.functions_items()), gvar: switch, **comparisons}
    unused = set(_named(main)).difference(*map(_named, functions.values()))
    kept = {each: func for each, func in functions.items() if each.name_hint not in unused}
    return IRModule(kept, attrs=lowered.attrs, global_infos=lowered.global_infos)


def _comparison(shapes: Sequence[Shape]) -> tirx.PrimFunc:
    """Whether tensors of these ranks have these shapes."""
    tensors = [tirx.Var(f"x{number}", "handle") for number in range(len(shapes))]
    equal = [
        tirx.EQ(_extent(tensor, axis), tirx.IntImm("int64", extent))
        for tensor, shape in zip(tensors, shapes, strict=True)
        for axis, extent in enumerate(shape)
    ]
    func = tirx.PrimFunc(tensors, tirx.Return(tirx.all(*equal)), ir.PrimType("bool"))
    return func.with_attrs({"s_tir": True, "tirx.is_host_func": True, "tirx.is_scheduled": True})


def _extent(tensor: ir.Var, axis: int) -> ir.Expr:
    return tirx.tvm_struct_get(tirx.tvm_struct_get(tensor, 0, _SHAPE, "handle"), axis, _EXTENT, "int64")


def _switched(
    seq: relax.SeqExpr, comparisons: Sequence[ir.Expr], late: Sequence[relax.Binding]
) -> relax.SeqExpr:
    """A branch with these comparisons in place of its first conditions; ``late`` comes first in the branch behind.

    What only conditions read is left out: their values are scalars.
    """
    bindings = _bindings(seq)
    if not comparisons:
        return relax.SeqExpr([relax.BindingBlock([*late, *bindings])], seq.body)
    place = next(i for i, binding in enumerate(bindings) if isinstance(binding.value, relax.If))
    before, (choice, *after) = bindings[:place], bindings[place:]
    assert isinstance(choice.value, relax.If)
    checks = [binding for binding in before if _is_check(binding)]
    matches = [each for each in before if not (_is_check(each) or isinstance(each.var.ty, ir.PrimType))]
    fits = relax.Var("fits", ir.PrimType("bool"))
    other = _switched(choice.value.false_branch, comparisons[1:], [*late, *matches])
    chosen = relax.If(fits, _without_second_name(choice.value.true_branch), other)
    made = [relax.VarBinding(fits, comparisons[0]), relax.VarBinding(choice.var, chosen)]
    return relax.SeqExpr([relax.BindingBlock([*checks, *made, *after])], seq.body)


def _is_check(binding: relax.Binding) -> bool:
    """Whether a binding checks a rank and a type, which a comparison of shapes needs, or is not from VMShapeLower."""
    called = binding.value.op if isinstance(binding.value, relax.Call) else None
    if not isinstance(called, relax.ExternFunc):
        return False
    name = str(called.global_symbol)
    return name == _CHECK or not name.startswith("vm.builtin.")


def _without_second_name(branch: relax.SeqExpr) -> relax.SeqExpr:
    """A branch that returns the result of its call itself: a second name is a call of the virtual machine."""
    calls = [
        binding
        for binding in _bindings(branch)
        if not isinstance(binding, relax.MatchCast) and op_name(binding.value) != _RELEASE
    ]
    return relax.SeqExpr([relax.BindingBlock(calls)], calls[0].var) if len(calls) == 1 else branch


def _bindings(seq: relax.SeqExpr) -> list[relax.Binding]:
    return [binding for block in seq.blocks for binding in block.bindings]


def _named(func: ir.BaseFunc) -> list[str]:
    """The names of the functions that a Relax function calls, by the place of the first call."""
    found: list[relax.Expr] = []
    if isinstance(func, relax.Function):
        relax.analysis.post_order_visit(func.body, found.append)
    return [str(each.name_hint) for each in found if isinstance(each, ir.GlobalVar)]
