"""Functions of kernels with sizes that follow from their own parameters.

    x: ((h - 1) // 2 + 1, 16), of a function with h   ->   x: (size, 16)

A function on its own does not know ``h``, a name of its caller. So each extent of a parameter that is not a number
gets a name of its own. All types are inferred again from these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from ..backends.base import Backend
from ..errors import first_line
from ..graph import SubGraph, extract
from ..graph.free_sizes import UnknownSize, sizes_in, substituted
from ..graph.sized_kernels import names_of_sizes, why_not_empty, why_not_told


def why_not_sized(sub: SubGraph, maker: Backend, like: Mapping[str, int] | None = None) -> str | None:
    """Why a backend does not make a kernel of ``sub``, if its sizes are known only when the program runs, or None.

    ``like``: the sizes at which kernels are measured; None if they are not.
    """
    sizes = names_of_sizes(sub)
    if not sizes:
        return None
    if not maker.takes_free_sizes:
        return f"{maker.name} takes static sizes, and those of {sub.label} are known when the program runs"
    if unknown := next((size for size in sizes if like is not None and size not in like), None):
        return f"there is no sample of the size {unknown}, at which a kernel could be measured"
    try:
        func = with_sizes_of_its_own(extract(sub, alone=True))
    except UnknownSize as error:
        return str(error)
    return None if maker.codegen is None else why_not_told(func) or why_not_empty(sub)


def with_sizes_of_its_own(func: relax.Function) -> relax.Function:
    """``func``, a list of bindings, over new sizes; as it is, where all are numbers.

    Raises UnknownSize with the reason where a type does not follow from the extents of parameters.
    """
    if not relax.analysis.defined_symbolic_vars(func) and not relax.analysis.free_symbolic_vars(func):
        return func
    sizes = _Sizes()
    renamed: dict[Any, relax.Expr] = {}
    params = [relax.Var(param.name, sizes.of_parameter(param.ty)) for param in func.params]
    renamed.update(zip(func.params, params, strict=True))
    for block in func.body.blocks:  # refuses before there is a builder, which warns when it is left
        for binding in block.bindings:
            _renamed(binding.value, {}, sizes)
    builder = relax.BlockBuilder()
    try:
        with builder.function("kernel", params):
            for block in func.body.blocks:
                dataflow = isinstance(block, relax.DataflowBlock)
                with builder.dataflow() if dataflow else nullcontext():
                    for binding in block.bindings:
                        value = _renamed(binding.value, renamed, sizes)
                        output = dataflow and not isinstance(binding.var, relax.DataflowVar)
                        made = (builder.emit_output if output else builder.emit)(value, binding.var.name)
                        renamed[binding.var] = made
            builder.emit_func_output(_renamed(func.body.body, renamed, sizes))
    except UnknownSize:
        raise
    except Exception as error:  # whatever TVM's inference of types raises
        raise UnknownSize(
            f"its types do not follow from those of its operands: {first_line(error)}"
        ) from error
    made = builder.get()["kernel"].without_attr("global_symbol")
    _check(func.ret_ty, made.ret_ty)
    return made.with_attrs(dict(func.attrs)) if func.attrs else made


@dataclass(slots=True)
class _Sizes:
    """The new name of each extent of a parameter."""

    variables: dict[ir.Var, ir.Var] = field(default_factory=dict)
    others: list[tuple[ir.Expr, ir.Var]] = field(default_factory=list)
    """Extents that are not a size alone, such as ``n // 2``."""

    def of_parameter(self, ty: ir.Type) -> ir.Type:
        """The type of a parameter over new sizes."""
        return _mapped(ty, self._named)

    def _named(self, extent: ir.Expr) -> ir.Expr:
        if isinstance(extent, tirx.IntImm):
            return extent
        if isinstance(extent, ir.Var):
            return self.variables.setdefault(extent, tirx.Var(extent.name, extent.ty))
        for known, name in self.others:
            if tvm_ffi.structural_equal(known, extent):
                return name
        self.others.append((extent, tirx.Var(f"size_{len(self.others)}", "int64")))
        return self.others[-1][1]

    def of(self, extent: ir.Expr) -> ir.Expr:
        """An extent in terms of the new sizes; raises UnknownSize where it is not one of them."""
        for known, name in self.others:
            if tvm_ffi.structural_equal(known, extent):
                return name

        for var in sizes_in(extent):
            if var not in self.variables:
                raise UnknownSize(f"the size {var.name} is not an extent of an operand")
        return substituted(extent, self.variables.__getitem__)


def _mapped(ty: ir.Type, change: Any) -> ir.Type:
    """``ty`` with its extents changed."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_mapped(part, change) for part in ty.fields])
    if isinstance(ty, relax.ShapeType) and ty.values is not None:
        return relax.ShapeType([change(extent) for extent in ty.values])
    if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        return relax.TensorType([change(extent) for extent in ty.shape.values], ty.dtype, ty.vdevice)
    return ty


def _renamed(expr: relax.Expr, renamed: dict[Any, relax.Expr], sizes: _Sizes) -> relax.Expr:
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_renamed(part, renamed, sizes) for part in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(_renamed(expr.tuple_value, renamed, sizes), expr.index)
    if isinstance(expr, relax.ShapeExpr):
        return relax.ShapeExpr([sizes.of(extent) for extent in expr.values])
    if isinstance(expr.ty, ir.PrimType):
        return sizes.of(expr)
    if isinstance(expr, relax.Call):
        args = [_renamed(arg, renamed, sizes) for arg in expr.args]
        types = [_mapped(ty, sizes.of) for ty in expr.ty_args]
        return relax.Call(_renamed(expr.op, renamed, sizes), args, expr.attrs, types)
    return renamed.get(expr, expr) if isinstance(expr, relax.Var) else expr


def _check(before: ir.Type, after: ir.Type) -> None:
    """Raises UnknownSize unless the results are as well known as before."""
    for one, other in zip(_fields(before), _fields(after), strict=True):
        if isinstance(getattr(one, "shape", None), relax.ShapeExpr) and not isinstance(
            getattr(other, "shape", None), relax.ShapeExpr
        ):
            raise UnknownSize("the size of a result does not follow from those of the operands")


def _fields(ty: ir.Type) -> Iterable[ir.Type]:
    return ty.fields if isinstance(ty, relax.TupleType) else (ty,)
