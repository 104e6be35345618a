"""How a chosen candidate looks as a function of its own."""

from __future__ import annotations

from tvm import relax

from ..graph import SubGraph, extract
from ..graph.extract import LIFTED


def external_function(inner: relax.Function, backend: str, label: str, symbol: str) -> relax.Function:
    """``inner`` for a code generator, as TVM's ``MergeCompositeFunctions`` leaves it.

    The result has ``Codegen`` and ``global_symbol`` and calls one local function with attribute
    ``Composite`` that holds the operators.
    """
    params = [relax.Var(param.name, param.ty) for param in inner.params]
    builder = relax.BlockBuilder()
    with builder.function(symbol, params):
        composite = builder.emit(inner.with_attr("Composite", f"{backend}.{label}"), "composite")
        builder.emit_func_output(builder.emit(relax.Call(composite, params, ret_ty=inner.ret_ty), "result"))
    func = builder.get()[symbol]
    return func.with_attrs({"Codegen": backend, "global_symbol": symbol})


def primitive_function(sub: SubGraph) -> relax.Function:
    """``sub`` for TVM: one kernel, closed to later fusion; large constants are parameters."""
    return extract(sub, lift_constants=True).without_attr(LIFTED).with_attr("Primitive", 1)
