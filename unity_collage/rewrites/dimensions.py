"""Dimensions for values whose shapes are only known when the program runs.

Before: ``u = unique(x)`` of type ``Tensor(ndim=1)``. After: ``u_1 = match_cast(u, Tensor((d,)))``, where ``d`` is a new
symbolic dimension. TVM has kernels for symbolic dimensions, not for unknown ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..graph.calls import op_name
from .bindings import substituted

_UPPER_BOUND = ("relax.vision.all_class_non_max_suppression",)
"""Operators with a type in Relax that is an upper bound of the result; their kernels return fewer rows."""


def with_dimensions(func: relax.Function, mod: IRModule) -> relax.Function:
    """``func`` with symbolic dimensions for each tensor of known rank and unknown shape; else ``func`` itself.

    ``func`` has no dataflow blocks afterwards.
    """
    if not any(_is_without(expr.ty) for expr in _values(func)):
        return func
    (plain,) = relax.transform.ToNonDataflow()(IRModule({"main": func})).functions.values()
    assert isinstance(plain, relax.Function)
    changed = _Dimensions(mod, _known_by_casts(plain)).visit_expr(_with_cast_parameters(plain))
    assert isinstance(changed, relax.Function)
    again = relax.Function(changed.params, changed.body, None, changed.is_pure, changed.attrs, changed.span)
    return relax.BlockBuilder(mod).normalize(again)


def with_kernels_of_unknown_size(mod: IRModule) -> IRModule:
    """``mod`` with kernels for the operators ``_UPPER_BOUND``, so that the values computed from them have correct
    types.
    """
    names = {op_name(call) for func in mod.functions.values() for call in _calls(func)}
    if not names & {*_UPPER_BOUND}:
        return mod
    others = [name for name in ir.Op.list_op_names() if name not in _UPPER_BOUND]
    return relax.transform.LegalizeOps(skip_ops=others)(mod)


@mutator
class _Dimensions(PyExprMutator):
    """Casts every variable of unknown shape, and infers the types of later bindings again.

    Not those that the function itself casts: TVM takes the sizes of two casts of one value for equal, and removes the
    first cast, which defines its sizes.
    """

    def __init__(self, mod: IRModule, known: set[relax.Var]) -> None:
        super().__init__(mod)
        self._known = known

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        super().visit_var_binding_(binding)
        var, new = binding.var, self.visit_expr(binding.var)
        if isinstance(new.ty, relax.TensorType) and _is_without(new.ty) and var not in self._known:
            self.set_var_remap(var, self.builder_.match_cast(new, _with_symbols(new.ty, var.name)))


def _with_cast_parameters(func: relax.Function) -> relax.Function:
    """``func`` with casts of its parameters of unknown shape in the body; the parameters keep their types."""
    casts = {
        param: relax.Var(param.name, _with_symbols(param.ty, param.name))
        for param in func.params
        if isinstance(param.ty, relax.TensorType) and _is_without(param.ty)
    }
    body = substituted(func, casts).body
    head = relax.BindingBlock([relax.MatchCast(cast, param, cast.ty) for param, cast in casts.items()])
    whole = relax.SeqExpr([head, *body.blocks], body.body)
    return relax.Function(func.params, whole, func.ret_ty, func.is_pure, func.attrs, func.span)


def _known_by_casts(func: relax.Function) -> set[relax.Var]:
    """The variables that are only read by casts to types with a shape."""
    bindings: list[relax.Binding] = []
    cast: Counter[relax.Var] = Counter()
    read: Counter[relax.Var] = Counter()

    def count(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var):
            read[expr] += 1
        elif isinstance(expr, relax.SeqExpr):
            bindings.extend(binding for block in expr.blocks for binding in block.bindings)

    relax.analysis.post_order_visit(func, count)
    for binding in bindings:
        if isinstance(binding, relax.MatchCast) and isinstance(binding.value, relax.Var):
            cast[binding.value] += not _is_without(binding.ty)
    return {var for var, times in cast.items() if times == read[var]}


def _with_symbols(ty: relax.TensorType, name: str) -> relax.TensorType:
    """``ty`` with a new dimension for each axis, such as ``x_0``."""
    shape = [tirx.Var(f"{name}_size_{axis}", "int64") for axis in range(ty.ndim)]
    return relax.TensorType(shape, ty.dtype, ty.vdevice)


def _is_without(ty: ir.Type) -> bool:
    return isinstance(ty, relax.TensorType) and ty.ndim >= 0 and not isinstance(ty.shape, relax.ShapeExpr)


def _values(func: relax.Function) -> Iterator[relax.Expr]:
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(func, found.append)
    return (expr for expr in found if isinstance(expr, (relax.Var, relax.Call)) and not expr.ty.is_missing())


def _calls(func: ir.BaseFunc) -> list[relax.Call]:
    found: list[relax.Expr] = []
    if isinstance(func, relax.Function):
        relax.analysis.post_order_visit(func, found.append)
    return [expr for expr in found if isinstance(expr, relax.Call)]
