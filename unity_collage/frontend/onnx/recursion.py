"""The private functions of a loop whose number of iterations is not known, or large.

Relax has no loops. A function that runs one iteration and calls itself for the others overflows the stack of the
process after some thousand iterations. So ``turns`` runs ``count`` iterations in halves, and its depth is log2(count):

    turns(first, count, ...) = iteration(first, ...) if count == 1 else halves(first, count, ...)
    halves(first, count, ...) = turns(first, count // 2, ...), then turns for the others if the condition still holds

Stacked results of halves are joined, so each is copied log2(count) times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import GlobalVar

from ...graph.shapes import tensor_type
from ...tvm_private import give_type
from .captured import Captured, Inside
from .names import safe
from .values import Dim, dims_of


@dataclass(frozen=True, slots=True)
class TensorForm:
    """The type of a tensor."""

    dtype: str
    dims: Sequence[Dim | None]
    """Sizes as they are outside of the function; None where the function decides them."""

    def type(self, inside: Inside) -> relax.TensorType:
        """The type inside; its sizes are left out if one of them is not known."""
        sizes = [dim for dim in self.dims if dim is not None]
        if len(sizes) < len(self.dims):
            return relax.TensorType(dtype=self.dtype, ndim=len(self.dims))
        return relax.TensorType(inside.dims(sizes, None), self.dtype)


@dataclass(frozen=True, slots=True)
class Form:
    """The parameters and results that the functions of a loop share.

    Results are a tuple: whether the condition holds (if ``stops``), the carried values, the stacked values.
    """

    captured: Captured
    carried: Mapping[int, TensorForm]
    """The values that iterations change, by their position among the loop's carried values."""
    scanned: Sequence[TensorForm]
    """The stacked values, without the dimension of the iterations."""
    stops: bool
    """Whether a condition may end the loop before all iterations have run."""

    @property
    def positions(self) -> list[int]:
        """The positions of the carried values that iterations change."""
        return list(self.carried)

    def parts(
        self,
        importer: Any,
        result: relax.Expr,
        carried: Sequence[Sequence[Dim | None]],
        scanned: Sequence[Sequence[Dim | None]],
    ) -> tuple[relax.Expr | None, list[relax.Expr], list[relax.Expr]]:
        """The parts of a call's result: the condition, the carried and the stacked values.

        ``carried`` and ``scanned`` are their sizes where the call is.

        TVM drops a ``match_cast`` that only renames sizes, so every part gets all its sizes at once.
        """
        var = importer.builder.emit(result)
        fields = [importer.builder.emit(relax.TupleGetItem(var, n)) for n in range(self._size())]
        condition = fields.pop(0) if self.stops else None
        shapes = [*carried, *scanned]
        parts = [sized(importer, field, dims) for field, dims in zip(fields, shapes, strict=True)]
        return condition, parts[: len(carried)], parts[len(carried) :]

    def result_type(self, inside: Inside) -> relax.TupleType:
        """The type of the results of a function."""
        stops = [relax.TensorType([], "bool")] if self.stops else []
        carried = [known.type(inside) for known in self.carried.values()]
        scanned = [TensorForm(known.dtype, [None, *known.dims]).type(inside) for known in self.scanned]
        return relax.TupleType([*stops, *carried, *scanned])

    def _size(self) -> int:
        return self.stops + len(self.carried) + len(self.scanned)


def sized(importer: Any, field: relax.Expr, dims: Sequence[Dim | None]) -> relax.Expr:
    """``field`` with these sizes; in place of None, a size of its own."""
    ty = tensor_type(field)
    if isinstance(ty.shape, relax.ShapeExpr):
        return field
    sizes = [importer.fresh_size() if dim is None else dim for dim in dims]
    return importer.builder.match_cast(field, relax.TensorType(sizes, ty.dtype))


@dataclass(frozen=True, slots=True)
class _Frame:
    """One function of a loop: its parameters, and calls of the others."""

    importer: Any
    form: Form
    inside: Inside
    first: relax.Var
    count: relax.Var
    carried: Sequence[relax.Var]

    @classmethod
    def new(cls, importer: Any, form: Form) -> _Frame:
        inside = form.captured.inside()
        number = relax.TensorType([], "int64")
        carried = [
            inside.parameter(f"carried_{position}", known.dtype, known.dims, importer.fresh_size)
            for position, known in form.carried.items()
        ]
        return cls(importer, form, inside, relax.Var("first", number), relax.Var("count", number), carried)

    @property
    def params(self) -> list[relax.Var]:
        return [self.first, self.count, *self.carried, *self.inside.params]

    def call(self, function: GlobalVar, *leading: relax.Expr) -> relax.Call:
        """A call with ``leading`` arguments and the captured values."""
        return relax.Call(function, [*leading, *self.inside.arguments()])

    def local(self, dims: Sequence[Dim | None]) -> list[Dim | None]:
        """Sizes of outside as they are in this function."""
        return [None if dim is None else self.inside.dims([dim], None)[0] for dim in dims]

    def parts(
        self, result: relax.Expr, before: Sequence[relax.Expr] = ()
    ) -> tuple[relax.Expr | None, list[relax.Expr], list[relax.Expr]]:
        """The parts of a call's result; its stacked values have the sizes of those ``before``, if there are some."""
        carried = [self.local(known.dims) for known in self.form.carried.values()]
        scanned = [[None, *self.local(known.dims)] for known in self.form.scanned]
        for dims, alike in zip(scanned, before, strict=False):
            dims[1:] = dims_of(alike)[1:]
        return self.form.parts(self.importer, result, carried, scanned)


def add_recursion(importer: Any, form: Form, iteration: GlobalVar, title: str) -> GlobalVar:
    """The function that runs at least one iteration: of the number of the first, how many, and the carried values."""
    builder: relax.BlockBuilder = importer.builder
    frame = _Frame.new(importer, form)
    turns = GlobalVar(builder.get_unique_name(safe(title)))
    give_type(turns, relax.FuncType([param.ty for param in frame.params], form.result_type(frame.inside)))
    halves = _halves(importer, form, turns, title)
    single = _once(importer, form, iteration, title)

    def emit() -> relax.Expr:
        is_last = builder.emit(relax.op.equal(frame.count, relax.const(1, "int64")))
        once = frame.call(single, frame.first, *frame.carried)
        more = frame.call(halves, frame.first, frame.count, *frame.carried)
        return builder.emit(relax.If(is_last, once, more))

    made = importer.function(f"{title}_turns", frame.params, emit)
    builder.update_func(turns, builder.get()[made])
    return turns


def _halves(importer: Any, form: Form, turns: GlobalVar, title: str) -> GlobalVar:
    builder, frame = importer.builder, _Frame.new(importer, form)
    others = _others(importer, form, turns, title) if form.stops else None

    def emit() -> relax.Expr:
        half = builder.emit(relax.op.floor_divide(frame.count, relax.const(2, "int64")))
        result = builder.emit(frame.call(turns, frame.first, half, *frame.carried))
        condition, carried, scanned = frame.parts(result)
        first = builder.emit(relax.op.add(frame.first, half))
        left = builder.emit(relax.op.subtract(frame.count, half))
        if others is None or condition is None:
            return _then(frame, turns, scanned, [first, left, *carried])
        more = frame.call(others, first, left, *carried, *scanned)
        return builder.emit(relax.If(condition, more, result))

    return importer.function(f"{title}_halves", frame.params, emit)


def _others(importer: Any, form: Form, turns: GlobalVar, title: str) -> GlobalVar:
    """The function for the second half, if the condition holds after the first."""
    frame = _Frame.new(importer, form)
    before = [
        frame.inside.parameter("before", known.dtype, [None, *known.dims], importer.fresh_size)
        for known in form.scanned
    ]
    params = [frame.first, frame.count, *frame.carried, *before, *frame.inside.params]
    leading = [frame.first, frame.count, *frame.carried]
    return importer.function(f"{title}_others", params, lambda: _then(frame, turns, before, leading))


def add_nothing(importer: Any, form: Form, title: str) -> GlobalVar:
    """The function for no iteration; its parameters are those of the function that runs some."""
    frame = _Frame.new(importer, form)

    def emit() -> relax.Expr:
        stops = [relax.const(False, "bool")] if form.stops else []
        empty = [importer.emit(no_rows(known, frame.local(known.dims))) for known in form.scanned]
        fields = zip([*stops, *frame.carried, *empty], form.result_type(frame.inside).fields, strict=True)
        return relax.Tuple([importer.wider(*pair) for pair in fields])

    return importer.function(f"{title}_nothing", frame.params, emit)


def _once(importer: Any, form: Form, iteration: GlobalVar, title: str) -> GlobalVar:
    """The function that runs one iteration and returns the type that all functions of the loop return."""
    frame = _Frame.new(importer, form)

    def emit() -> relax.Expr:
        call = frame.call(iteration, frame.first, *frame.carried)
        return importer.widened(call, form.result_type(frame.inside))

    params = [frame.first, *frame.carried, *frame.inside.params]
    return importer.function(f"{title}_once", params, emit)


def no_rows(known: TensorForm, dims: Sequence[Dim | None]) -> relax.Expr:
    """The stacked values of no iterations; sizes that only an iteration would determine are 0, as in ONNX Runtime."""
    return relax.op.zeros(relax.ShapeExpr([0, *(0 if dim is None else dim for dim in dims)]), known.dtype)


def _then(
    frame: _Frame, turns: GlobalVar, before: Sequence[relax.Expr], leading: Sequence[relax.Expr]
) -> relax.Expr:
    """Run the other iterations, and join the stacked values with those of the iterations ``before``."""
    condition, carried, scanned = frame.parts(frame.call(turns, *leading), before)
    joined = [
        frame.importer.emit(relax.op.concat(list(pair), 0)) for pair in zip(before, scanned, strict=True)
    ]
    return relax.Tuple([*([] if condition is None else [condition]), *carried, *joined])
