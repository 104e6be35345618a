"""The switch: a function that chooses by the sizes of its inputs which function to call.

It allocates and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeAlias

from tvm import ir, relax, tirx

from ..graph.variants import SWITCH, UpTo

Called: TypeAlias = "tuple[Mapping[str, int] | UpTo, ir.GlobalVar]"
"""The sizes for which a function is called, by dimension, or the greatest product of them; and the function."""


def switch(
    main: relax.Function,
    called: Sequence[Called],
    last: ir.GlobalVar,
) -> relax.Function:
    """A function with the parameters of ``main``: a chain of ``If`` on their sizes.

    ``called``: functions and the sizes for which each is called, the first that fits. ``last`` is called for all
    others.
    """
    params = [relax.Var(param.name, param.ty) for param in main.params]
    symbols = {dim.name: dim for param in params for dim in dims_of(param.ty) if isinstance(dim, ir.Var)}
    body = _call(last, params)
    for sizes, gvar in reversed(called):
        body = _bound_to("chosen", relax.If(_condition(sizes, symbols), _call(gvar, params), body))
    func = relax.Function(params, body, erased(main.ret_ty), is_pure=main.is_pure)
    names = [gvar.name_hint for _, gvar in called]
    return func.with_attrs({**dict(main.attrs or {}), SWITCH: [*names, last.name_hint]})


def _condition(sizes: Mapping[str, int] | UpTo, symbols: Mapping[str, ir.Var]) -> ir.Expr:
    if isinstance(sizes, UpTo):
        product = reduce(tirx.Mul, [symbols[name] for name in sizes.dimensions])
        return tirx.LE(product, tirx.IntImm("int64", sizes.most))
    return reduce(
        tirx.And, [tirx.EQ(symbols[name], tirx.IntImm("int64", size)) for name, size in sizes.items()]
    )


def _call(gvar: ir.GlobalVar, params: Sequence[relax.Var]) -> relax.SeqExpr:
    return _bound_to(f"of_{gvar.name_hint}", relax.Call(gvar, list(params)))


def _bound_to(name: str, value: relax.Expr) -> relax.SeqExpr:
    var = relax.Var(name)
    return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, value)])], var)


def erased(ty: ir.Type) -> ir.Type:
    """``ty`` without sizes: they are numbers in variants only."""
    if isinstance(ty, relax.TensorType):
        return relax.TensorType(dtype=ty.dtype, ndim=ty.ndim)
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([erased(field) for field in ty.fields])
    return relax.ShapeType(ndim=ty.ndim) if isinstance(ty, relax.ShapeType) else ty


def dims_of(ty: ir.Type) -> Sequence[ir.Expr]:
    """The dimensions of a tensor type; empty for other types and unknown shapes."""
    return list(getattr(getattr(ty, "shape", None), "values", ()))
