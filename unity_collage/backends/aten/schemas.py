"""Overloads of ATen by torch's own schemas: which one takes the arguments of a call, and which one writes its results.

PyTorch is imported when the first call is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from tvm import ir, relax

from ...errors import first_line
from ...graph.shapes import dtype_of, shape_of
from ...runtime.torch_kernels import TorchKernel, results_of
from .asked import AskedCall, NotAten, Operand, TorchName

_TYPES = frozenset(
    {"bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"}
)
_KINDS: Mapping[type, frozenset[str]] = {
    bool: frozenset({"bool"}),
    int: frozenset({"int", "number"}),
    float: frozenset({"float", "number"}),
    str: frozenset({"str"}),
    Operand: frozenset({"Tensor"}),
    TorchName: frozenset({"int"}),
}
"""The types of a schema that take a value, as torch names them: types of elements and open sizes are ``int``."""


def kernel_of(asked: AskedCall, call: relax.Call, values: Sequence[relax.Expr]) -> TorchKernel:
    """The kernel that computes ``call`` by ``asked``; ``values``: its operands, in the order in which it gets them.

    Types and shapes of the results are computed by ATen on tensors without data. Raises NotAten where no overload
    takes the arguments, or where ATen's results are others than those of ``call``.
    """
    torch = import_module("torch")
    try:
        packet = getattr(torch.ops.aten, asked.packet)
    except AttributeError:
        raise NotAten(f"this version of ATen has no {asked.packet}") from None
    every = [getattr(packet, name) for name in packet.overloads()]
    overload = next((each for each in every if _takes(each, asked)), None)
    if overload is None:
        raise NotAten(f"no overload of ATen's {asked.packet} takes its arguments")
    template = _Template(values)
    by_position, named = _arguments(overload, asked, template)
    kernel = TorchKernel(
        operator=str(overload),
        arguments=by_position,
        named=named,
        places=[each.written for each in asked.places],
        sources=[(each.number, each.found) for each in asked.places],
        also=[template.of(each) for each in asked.also],
    )
    _check(kernel, torch, overload, asked, call, values)
    return _writing(kernel, overload, every, asked)


def _takes(overload: Any, asked: AskedCall) -> bool:
    """Whether an overload changes nothing, and takes all arguments and needs no other."""
    arguments = overload._schema.arguments
    if overload._schema.is_mutable or len(asked.operands) > len(arguments):
        return False
    positional, rest = arguments[: len(asked.operands)], arguments[len(asked.operands) :]
    if any(argument.kwarg_only for argument in positional):
        return False
    if set(asked.named) - {argument.name for argument in rest}:
        return False
    given = [*zip(positional, asked.operands, strict=True)]
    given += [(argument, asked.named[argument.name]) for argument in rest if argument.name in asked.named]
    needed = [argument for argument in rest if argument.name not in asked.named]
    return all(_fits(value, str(argument.type)) for argument, value in given) and all(
        argument.has_default_value() for argument in needed
    )


def _fits(value: Any, kind: str) -> bool:
    """Whether a value is of a type that a schema names, such as ``Optional[List[int]]``."""
    if kind.startswith("Optional["):
        return value is None or _fits(value, kind[len("Optional[") : -1])
    if isinstance(value, (list, tuple)):
        inner = kind[len("List[") : -1]
        return kind.startswith("List[") and all(_fits(each, inner) for each in value)
    return kind in _KINDS.get(type(value), frozenset())


def _arguments(overload: Any, asked: AskedCall, template: _Template) -> tuple[list[Any], dict[str, Any]]:
    """The arguments by position, without defaults at their end, and those by name."""
    by_position = [template.of(value) for value in asked.operands]
    rest = overload._schema.arguments[len(by_position) :]
    positional = [argument for argument in rest if not argument.kwarg_only]
    last = max((at for at, each in enumerate(positional, start=1) if each.name in asked.named), default=0)
    for argument in positional[:last]:
        value = asked.named.get(argument.name, argument.default_value)
        by_position.append(template.of(value))
    named = {
        each.name: asked.named[each.name] for each in rest if each.kwarg_only and each.name in asked.named
    }
    return by_position, {name: template.of(value) for name, value in named.items()}


class _Template:
    """Values as templates of :func:`unity_collage.runtime.torch_calls.filled`."""

    def __init__(self, values: Sequence[relax.Expr]) -> None:
        self._number = {value: number for number, value in enumerate(values)}

    def of(self, value: Any) -> Any:
        if isinstance(value, Operand):
            tensor = {"tensor": self._number[value.value]}
            return {"view": [tensor, [list(view) for view in value.views]]} if value.views else tensor
        if isinstance(value, TorchName):
            return {"torch": value.name}
        if isinstance(value, (list, tuple)):
            return [self.of(each) for each in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise NotAten(f"a default of its schema is a {type(value).__name__}")


def _check(
    kernel: TorchKernel,
    torch: Any,
    overload: Any,
    asked: AskedCall,
    call: relax.Call,
    values: Sequence[relax.Expr],
) -> None:
    """Raises NotAten unless ATen's results have the types and shapes of those of ``call``."""
    operands = [_without_data(torch, value.ty) for value in values]
    try:
        found = results_of(kernel, torch, overload, operands)
    except Exception as error:  # of ATen, which refuses the arguments
        raise NotAten(f"ATen refuses it: {first_line(error)}") from error
    results = list(_results(call.ty))
    if len(results) != len(found):
        raise NotAten(f"it has {len(results)} results, and ATen {len(found)}")
    for number, (ty, result, place) in enumerate(zip(results, found, asked.places, strict=True)):
        wanted = _without_data(torch, ty)
        for method, *arguments in place.written:
            wanted = getattr(wanted, method)(*arguments)
        if wanted.shape != result.shape:
            raise NotAten(f"result {number} is {tuple(wanted.shape)}, and ATen's {tuple(result.shape)}")
        if wanted.dtype != result.dtype and not asked.casts:
            raise NotAten(f"result {number} is {_dtype(wanted)}, and ATen's is {_dtype(result)}")


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _results(ty: ir.Type) -> Iterator[ir.Type]:
    """The types of the results of an operator."""
    for each in ty.fields if isinstance(ty, relax.TupleType) else [ty]:
        if not isinstance(each, relax.TensorType):
            raise NotAten("a result is not a tensor")
        yield each


def _without_data(torch: Any, ty: ir.Type) -> Any:
    """A tensor with the type and the shape of ``ty`` only; raises NotAten for types that PyTorch lacks."""
    shape, dtype = shape_of(ty), dtype_of(ty)
    if dtype not in _TYPES:
        raise NotAten(f"ATen has few operators for {dtype}")
    if shape is None:
        raise NotAten("its sizes are known only when the program runs")
    if 0 in shape:
        raise NotAten("a tensor has no elements")
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def _writing(kernel: TorchKernel, overload: Any, every: Sequence[Any], asked: AskedCall) -> TorchKernel:
    """``kernel`` with the overload that writes its results into their places, if ATen has one, else as it is."""
    inputs = _described(overload._schema.arguments)
    count = len(overload._schema.returns)
    in_order = [(each.number, each.found) for each in asked.places] == [
        (number, ()) for number in range(count)
    ]
    if not in_order or asked.casts:
        return kernel
    for other in every:
        outs = [argument for argument in other._schema.arguments if argument.is_out]
        rest = [argument for argument in other._schema.arguments if not argument.is_out]
        are_tensors = all(str(argument.type) == "Tensor" for argument in outs)
        if len(outs) == count and are_tensors and _described(rest) == inputs:
            return replace(
                kernel, operator=str(other), writes=[argument.name for argument in outs], sources=[]
            )
    return kernel


def _described(arguments: Sequence[Any]) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in arguments]
