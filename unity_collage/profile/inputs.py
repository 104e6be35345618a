"""The inputs that whole programs run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import IRModule

from ..errors import CollageError
from ..graph.calls import calls, op_name
from ..graph.multiples import multiples
from ..graph.shapes import dtype_of, tensor_type
from ..graph.variants import called_by_switch, like_of, sizes_of, variants_in
from ..measure.inputs import random_inputs, why_not_drawn
from ..reference.literals import size_of

_PICKS = frozenset({"relax.argmax", "relax.argmin", "relax.argsort", "relax.topk"})
"""Operators whose integers are indexes of their operand, whatever its numbers are."""

_MOST_SETS = 4
"""The most sizes at which programs are compared: the least, the greatest, and others spread between them."""


def why_not_runnable(mod: IRModule) -> str | None:
    """Why ``main`` cannot be run on dummy inputs of static shapes, or None."""
    if not any(gvar.name_hint == "main" for gvar in mod.get_global_vars()):
        return "the module has no function named main"
    main = mod["main"]
    if not isinstance(main, relax.Function):
        return "main is not a function of Relax"
    return next((reason for param in main.params if (reason := why_not_drawn(param))), None)


def why_not_comparable(mod: IRModule) -> str | None:
    """Why whole programs of ``mod`` cannot be compared, or None: its inputs have static shapes or sample sizes."""
    reason = why_not_runnable(mod)
    if reason is None or not samples_of(mod):
        return reason
    try:
        input_sets(mod)
    except CollageError as error:
        return str(error)
    return None


def why_not_exceptional(mod: IRModule) -> str | None:
    """Why programs of ``mod`` are not run on NaN and infinity, or None.

    Integers that are made of them are not defined: as indexes or as conditions they may end the process.
    """
    for func in mod.functions.values():
        if not isinstance(func, relax.Function):
            continue
        for block in func.body.blocks:
            if any(isinstance(binding.value, (relax.If, relax.Function)) for binding in block.bindings):
                return "it has branches"
        for call in calls(func):
            made = {dtype_of(ty) for ty in tensors_in([call.ty])}
            read = {dtype_of(ty) for ty in tensors_in([arg.ty for arg in call.args])}
            makes_indexes = made & {"int32", "int64"} and any("float" in dtype for dtype in read)
            if makes_indexes and op_name(call) not in _PICKS:
                return f"{op_name(call)} makes integers of floats"
    return None


def has_bfloat16(mod: IRModule) -> bool:
    """Whether an input or a result of ``main`` is bfloat16."""
    main = mod["main"]
    types = [*(param.ty for param in main.params), main.ret_ty] if isinstance(main, relax.Function) else []
    return any(dtype_of(ty) == "bfloat16" for ty in tensors_in(types))


def tensors_in(types: Sequence[relax.Type]) -> Iterator[relax.TensorType]:
    """The types of tensors, those inside of tuples too."""
    for ty in types:
        if isinstance(ty, relax.TupleType):
            yield from tensors_in(list(ty.fields))
        elif isinstance(ty, relax.TensorType):
            yield ty


def samples_of(mod: IRModule) -> list[dict[str, int]]:
    """The sizes of open dimensions at which programs are compared: those of variants, else those of kernels' costs.

    A variant may leave a dimension open. Then it has the size at which its kernels are measured.
    """
    if why_not_runnable(mod) is None or "main" not in {gvar.name_hint for gvar in mod.get_global_vars()}:
        return []
    found = [{**like_of(mod[name]), **sizes_of(mod[name])} for name in variants_in(mod)]
    if not found and (like := like_of(mod["main"])):
        found = [like]
    step = max(1, -(-(len(found) - 1) // (_MOST_SETS - 1))) if len(found) > 1 else 1
    return [*found[:-1:step], found[-1]] if found else []


def dummy_inputs(mod: IRModule) -> list[np.ndarray]:
    """Random inputs for ``main``; integers are 0, since they may be indexes."""
    return _dummies(mod["main"])


def input_sets(mod: IRModule) -> list[list[np.ndarray]]:
    """:func:`dummy_inputs`; where sizes are open, once for each of the samples. Raises CollageError with the reason."""
    samples = samples_of(mod)
    if not samples:
        return [dummy_inputs(mod)]
    return [inputs_of_sizes(mod, sizes) for sizes in samples]


def unmet_sizes(mod: IRModule) -> list[dict[str, int]]:
    """Sizes of the open dimensions that are none of the samples, the smaller first; empty where there are none.

    They are those between the two smallest and the two largest samples, since sizes may have two plans, or half of the
    only sample. They are multiples where the model takes no others. Where half of the sample is 0, it is the size at
    which the kernels for all other sizes are measured: so the prompts of a decoder are run too.
    """
    samples = samples_of(mod)
    if not samples:
        return []
    called = called_by_switch(mod["main"])
    whole = mod[called[-1]] if called else mod["main"]
    others, of = like_of(whole) if called else {}, multiples(whole)
    small: dict[str, int] = {}
    large: dict[str, int] = {}
    for name in samples[0]:
        unit = of.get(name, 1)
        *smaller, largest = sorted({sizes[name] // unit for sizes in samples})
        half = (smaller[-1] + largest) // 2 if smaller else largest // 2
        large[name] = half * unit or others.get(name, unit)
        small[name] = sum(smaller[:2]) // 2 * unit if len(smaller) > 1 else large[name]
    return [sizes for sizes in ([small, large] if small != large else [large]) if sizes not in samples]


def inputs_of_sizes(mod: IRModule, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """:func:`dummy_inputs` with these sizes of the open dimensions; raises CollageError."""
    return _dummies(_of_sizes(mod["main"], sizes))


def _dummies(func: relax.Function) -> list[np.ndarray]:
    return [np.zeros_like(value) if value.dtype.kind in "iub" else value for value in random_inputs(func)]


def _of_sizes(main: relax.Function, sizes: Mapping[str, int]) -> relax.Function:
    """A function with the parameters of ``main`` at these sizes of its open dimensions, by name."""
    known: dict[Any, int] = {}
    for var in relax.analysis.defined_symbolic_vars(main):
        if var.name not in sizes:
            raise CollageError(f"no sample has a size of the dimension {var.name}")
        known[var] = sizes[var.name]
    params = []
    for param in main.params:
        if not isinstance(param.ty, relax.TensorType) or not isinstance(param.ty.shape, relax.ShapeExpr):
            raise CollageError(why_not_drawn(param) or f"{param.name} is not a tensor of known rank")
        shape = [size_of(dim, known) for dim in _dims(param)]
        params.append(relax.Var(param.name, relax.TensorType(shape, dtype_of(param))))
    return relax.Function(params, relax.Tuple(params), ret_ty=relax.TupleType([p.ty for p in params]))


def _dims(param: relax.Var) -> list[ir.Expr]:
    shape = tensor_type(param).shape
    assert isinstance(shape, relax.ShapeExpr)
    return list(shape.values)
