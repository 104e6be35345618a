"""A batch in parts: a number of samples that has no variant is computed by the variants of smaller numbers.

::

    main_beyond_n_8(x: (n, 16)): h = (n // 8 + 1) // 2 * 8, concat(main(x[:h]), main(x[h:]))

So ``main`` calls itself about as often as there are parts, and as deep as the logarithm of that. Only a function that
computes each sample alone (:mod:`unity_collage.graph.sample_axis`) may be computed in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from tvm import ir, relax, tirx
from tvm.relax import op

from ..graph.sample_axis import Mixed, SampleAxes, SampleAxis, sample_axes
from ..graph.shapes import tensor_type
from ..graph.variants import IN_PARTS
from .samples import Sizes, free_dimensions
from .switch import dims_of, erased


def axes_in_parts(main: relax.Function, samples: Sequence[Sizes]) -> SampleAxes | str:
    """The axes of the samples of ``main`` if variants for ``samples`` can compute any number of them, else why not."""
    name, *others = {name for sizes in samples for name in sizes} | free_dimensions(main).keys()
    if others:
        return "sizes of several dimensions are free"
    if min(sizes[name] for sizes in samples) > 1:
        return f"there is no variant for {name} 1"
    if (found := _dimension(main, name)) is None:
        return f"no input has the size {name}"
    try:
        axes = sample_axes(main, found)
        _nothing(main.ret_ty)
    except Mixed as error:
        return str(error)
    return axes


def with_axes(func: relax.Function, axes: SampleAxes) -> relax.Function:
    """``func``, a switch, with the axes along which its inputs and results are split."""
    data = {
        "params": [[] if each is None else [each.axis, each.each] for each in axes.params],
        "results": [[each.axis, each.each] for each in axes.results],
    }
    return func.with_attr(IN_PARTS, data)


SplitAxes = tuple[list[SampleAxis | None], list[SampleAxis]]
"""The axes of the inputs, None for one that is the same for all samples, and of the results."""


def axes_of(func: relax.Function) -> SplitAxes | None:
    """The axes of inputs and of results that :func:`with_axes` has written; None where batches have no parts."""
    found: Any = (func.attrs or {}).get(IN_PARTS)
    if found is None:
        return None
    read = [[SampleAxis(*map(int, each)) if len(each) else None for each in found[key]] for key in found]
    by_key = dict(zip(found, read, strict=True))
    return by_key["params"], [each for each in by_key["results"] if each is not None]


def copies(variant: relax.Function, axes: SplitAxes, whole: int, parts: tuple[int, int]) -> relax.Function:
    """Only the slices and concatenations for computing ``whole`` samples as two ``parts``, with static sizes.

    ``variant``: a function like that which computes the parts, for any number of samples.
    """
    builder = relax.BlockBuilder()
    fields = list(variant.ret_ty.fields) if isinstance(variant.ret_ty, relax.TupleType) else [variant.ret_ty]
    inputs = [
        (relax.Var(f"x{n}", _resized(param.ty, axis, whole)), axis)
        for n, (param, axis) in enumerate(zip(variant.params, axes[0], strict=True))
        if axis is not None
    ]
    halves = [
        ([relax.Var(f"y{n}_{m}", _resized(ty, axis, part)) for m, part in enumerate(parts)], axis)
        for n, (ty, axis) in enumerate(zip(fields, axes[1], strict=True))
    ]
    params = [*(x for x, _ in inputs), *(y for pair, _ in halves for y in pair)]
    with builder.function("copies", params):
        with builder.dataflow():
            made: list[relax.Expr] = []
            for x, axis in inputs:
                ends = pairwise((0, parts[0] * axis.each, whole * axis.each))
                made += [builder.emit_output(_slice(x, axis, begin, end)) for begin, end in ends]
            made += [builder.emit_output(op.concat(pair, axis=axis.axis)) for pair, axis in halves]
        builder.emit_func_output(relax.Tuple(made))
    return builder.get()["copies"].without_attr("global_symbol")


def _resized(ty: ir.Type, axis: SampleAxis, count: int) -> relax.TensorType:
    """The type of a value with ``count`` samples."""
    dims = [dim.value if isinstance(dim, tirx.IntImm) else dim for dim in dims_of(ty)]
    dims[axis.axis] = axis.each * count
    return relax.TensorType(dims, tensor_type(ty).dtype)


def two_parts(main: relax.Function, axes: SampleAxes, count: int, whole: ir.GlobalVar) -> relax.Function:
    """A function like ``main`` for more than ``count`` samples, which calls ``whole`` for two parts of them.

    The first part is about half of them, and a multiple of ``count``.
    """
    params = [relax.Var(param.name, param.ty) for param in main.params]
    number = _number(params, axes)
    middle = (number // count + 1) // 2 * count
    body = _Parts(params, axes, (0, middle, number), whole).body()
    return relax.Function(params, body, erased(main.ret_ty), is_pure=main.is_pure)


def for_none(main: relax.Function) -> relax.Function:
    """A function like ``main`` for no samples: its results have no elements."""
    params = [relax.Var(param.name, param.ty) for param in main.params]
    return relax.Function(
        params, _Block().ended(_nothing(main.ret_ty)), erased(main.ret_ty), is_pure=main.is_pure
    )


@dataclass(frozen=True)
class _Parts:
    """Calls a function for two parts of the samples."""

    params: Sequence[relax.Var]
    axes: SampleAxes
    ends: tuple[ir.Expr | int, ir.Expr, ir.Expr]
    whole: ir.GlobalVar

    def body(self) -> relax.SeqExpr:
        block = _Block()
        results = [self._part(block, *part) for part in pairwise(self.ends)]
        return block.ended(self._joined(block, results))

    def _part(self, block: _Block, begin: ir.Expr | int, end: ir.Expr | int) -> relax.Var:
        args = [
            param if axis is None else block.bind(_slice(param, axis, begin * axis.each, end * axis.each))
            for param, axis in zip(self.params, self.axes.params, strict=True)
        ]
        return block.bind(relax.Call(self.whole, args))

    def _joined(self, block: _Block, results: Sequence[relax.Var]) -> relax.Expr:
        if not self.axes.is_tuple:
            return op.concat(list(results), axis=self.axes.results[0].axis)
        fields: list[relax.Expr] = []
        for index, axis in enumerate(self.axes.results):
            parts = [block.bind(relax.TupleGetItem(result, index)) for result in results]
            fields.append(block.bind(op.concat(parts, axis=axis.axis)))
        return relax.Tuple(fields)


@dataclass(frozen=True)
class _Block:
    bindings: list[relax.Binding] = field(default_factory=list[relax.Binding])

    def bind(self, value: relax.Expr) -> relax.Var:
        var = relax.DataflowVar(f"part{len(self.bindings)}")
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def ended(self, value: relax.Expr) -> relax.SeqExpr:
        result = relax.Var("result")
        block = relax.DataflowBlock([*self.bindings, relax.VarBinding(result, value)])
        return relax.SeqExpr([block], result)


def _nothing(ty: ir.Type) -> relax.Expr:
    """The results for no samples."""
    if isinstance(ty, relax.TupleType):
        return relax.Tuple([_nothing(each) for each in ty.fields])
    dims, tensor = dims_of(ty), tensor_type(ty)
    if len(dims) != tensor.ndim:
        raise Mixed("the shape of a result is not known")
    sizes = [int(dim.value) if isinstance(dim, tirx.IntImm) else 0 for dim in dims]
    return relax.const(np.empty(sizes, str(tensor.dtype)), str(tensor.dtype))


def _slice(x: relax.Var, axis: SampleAxis, begin: ir.Expr | int, end: ir.Expr | int) -> relax.Expr:
    return op.strided_slice(x, [axis.axis], [begin], [end], assume_inbound=True)


def _dimension(main: relax.Function, name: str) -> tirx.Var | None:
    """The symbolic size of this name in the parameters of ``main``."""
    for param in main.params:
        for dim in dims_of(param.ty):
            if isinstance(dim, ir.Var) and dim.name == name:
                return dim
    return None


def _number(params: Sequence[relax.Var], axes: SampleAxes) -> ir.Expr:
    """How many samples the parameters have."""
    for param, axis in zip(params, axes.params, strict=True):
        if axis is not None and axis.each == 1:
            return dims_of(param.ty)[axis.axis]
    raise Mixed("no input has one position for each sample")
