"""Kernels of backends that lower their candidates to TIR: a PrimFunc that TVM compiles with the rest of the module."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.ir import IRModule

from ..annotations import LABEL, LIFTED, PARTS, THREADS, plain, threads_of
from ..backends.base import Backend
from ..graph.extract import PRIM_FUNCS
from ..graph.prim_funcs import why_not_loops
from ..graph.shapes import dtype_of, shape_of
from ..legalization.wide_indexes import is_buffer


class NotLowered(Exception):
    """A backend makes no PrimFunc of a function; the text is the reason."""


def lowered_to_tir(func: relax.Function, backend: Backend) -> tirx.PrimFunc:
    """The PrimFunc that ``backend`` makes of ``func``, which is from :func:`.outlined.kernel_function`.

    It takes the parameters of ``func`` and then its results. Raises NotLowered with the reason where the backend
    refuses, or where the PrimFunc does not fit.
    """
    assert backend.lower_to_tir is not None
    bare = func.without_attr(LIFTED).without_attr(LABEL).without_attr(PARTS).without_attr(THREADS)
    prim = backend.lower_to_tir(bare.with_attr("Composite", _label(func)))
    if isinstance(prim, str):
        raise NotLowered(prim)
    reason = _why_not_fits(prim, func) or why_not_loops(prim)
    if reason is not None:
        raise NotLowered(f"the PrimFunc that {backend.name} makes of it does not fit: {reason}")
    return prim.without_attr("global_symbol")


def _label(func: relax.Function) -> str:
    """The label of the candidate, or those of its parts."""
    attrs = func.attrs or {}
    parts = plain(attrs[PARTS]) if PARTS in attrs else []
    return str(attrs[LABEL]) if LABEL in attrs else "+".join(str(part["label"]) for part in parts)


def calling(func: relax.Function, prim: relax.GlobalVar) -> relax.Function:
    """A kernel of TVM, ``Primitive``, that computes ``func`` by a call of ``prim``."""
    params = [relax.Var(param.name, param.ty) for param in func.params]
    builder = relax.BlockBuilder()
    with builder.function("extracted", params):
        with builder.dataflow():
            results: Any = list(_results(func)) if isinstance(func.ret_ty, relax.TupleType) else func.ret_ty
            result = builder.emit_output(relax.call_tir(prim, relax.Tuple(params), out_ty=results))
        builder.emit_func_output(result)
    made = builder.get()["extracted"].without_attr("global_symbol").with_attr("Primitive", 1)
    threads = threads_of(func)
    return made if threads is None else made.with_attr(THREADS, threads)


def standing_alone(func: relax.Function, backend: Backend) -> relax.Function:
    """``func`` as a call of the PrimFunc that ``backend`` makes of it, which is its attribute ``PRIM_FUNCS``.

    Raises NotLowered.
    """
    builder = relax.BlockBuilder()
    gvar = builder.add_func(lowered_to_tir(func, backend), "tir0")
    mod = IRModule(builder.get().functions)
    return calling(func, gvar).with_attrs({PRIM_FUNCS: mod, LIFTED: int(func.attrs[LIFTED])})


def _results(func: relax.Function) -> tuple[Any, ...]:
    return tuple(func.ret_ty.fields) if isinstance(func.ret_ty, relax.TupleType) else (func.ret_ty,)


def _why_not_fits(prim: tirx.PrimFunc, func: relax.Function) -> str | None:
    """Why ``prim`` cannot be called with the parameters and the results of ``func``, or None."""
    wanted = [*(param.ty for param in func.params), *_results(func)]
    if len(prim.params) != len(wanted):
        return f"it has {len(prim.params)} parameters, not {len(wanted)}"
    for buffer, ty in zip(prim.params, wanted, strict=True):
        if not is_buffer(buffer):
            return f"{buffer.name} is not a tensor"
        shape = tuple(int(size) if isinstance(size, tirx.IntImm) else -1 for size in buffer.shape)
        if shape != shape_of(ty) or str(buffer.dtype) != dtype_of(ty):
            return f"{buffer.name} is {buffer.dtype} {shape}, not {dtype_of(ty)} {shape_of(ty)}"
    return None
