"""Kernels that PyTorch computes: calls of ATen that leave their results in the tensors of a program.

The native module of the kind ``collage.torch`` has them as texts, and asks for a function of each when it is first
called. Tensors go to PyTorch by DLPack, without copies. PyTorch is imported with the first kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

from ..ffi import tvm_ffi
from .torch_calls import filled, leaves, overload_of, viewed, why_unavailable
from .torch_tensors import exactly, on_threads

KIND = "collage.torch"
"""The kind of modules with such kernels."""

Methods = Sequence[Sequence[Any]]
"""Views of a tensor (:func:`.torch_calls.viewed`), innermost first."""


@dataclass(frozen=True, slots=True)
class TorchKernel:
    """A call of ATen, and where its results go.

    Arguments are templates (:func:`.torch_calls.filled`) of the operands: the inputs, then the constants.
    """

    operator: str
    """An overload, such as ``aten.add.out``."""
    arguments: Sequence[Any]
    """Those by position."""
    named: dict[str, Any]
    places: Sequence[Methods]
    """For each result the views of its tensor that have the shape of ATen's result."""
    writes: Sequence[str] = ()
    """The arguments that are the places, in their order; if there are none, results are copied there."""
    sources: Sequence[tuple[int, Methods]] = ()
    """For each place that is copied to the number of a result, and the views of it."""
    also: Sequence[Any] = field(default_factory=list[Any])
    """Templates of operands that count as further results."""

    def to_json(self) -> str:
        """The text for the native module."""
        return json.dumps(asdict(self))


def results_of(kernel: TorchKernel, torch: Any, overload: Any, operands: Sequence[Any]) -> list[Any]:
    """What a kernel without ``writes`` copies to its places; ``overload``: that of its operator."""
    arguments = [filled(each, torch, operands) for each in kernel.arguments]
    named = {name: filled(each, torch, operands) for name, each in kernel.named.items()}
    found = [leaf for leaf in leaves(overload(*arguments, **named)) if leaf is not None]
    found += [filled(each, torch, operands) for each in kernel.also]
    return [viewed(found[number], views) for number, views in kernel.sources]


def operators_in(modules: Iterable[Any]) -> list[str]:
    """The operators of PyTorch that kernels in these modules call, each once."""
    texts = [
        kernel["call"]
        for module in modules
        if str(module.kind) == KIND
        for kernel in json.loads(str(module.inspect_source()))["kernels"]
    ]
    return sorted({json.loads(text)["operator"] for text in texts})


def made(text: str, constants: Sequence[Any]) -> Any:
    """The function of a kernel: it takes the inputs, and the tensors for the results.

    Raises RuntimeError where PyTorch is missing, or lacks the operator.
    """
    kernel = TorchKernel(**json.loads(str(text)))
    if reason := why_unavailable([kernel.operator]):
        raise RuntimeError(reason)
    torch = import_module("torch")
    overload = overload_of(torch, kernel.operator)
    held = [torch.from_dlpack(each) for each in constants]

    def compute(*tensors: Any) -> None:
        count = len(tensors) - len(kernel.places)
        operands = [*tensors[:count], *held]
        places = [viewed(place, views) for place, views in zip(tensors[count:], kernel.places, strict=True)]
        with exactly(torch), on_threads(torch, 1):
            if kernel.writes:
                arguments = [filled(each, torch, operands) for each in kernel.arguments]
                named = {name: filled(each, torch, operands) for name, each in kernel.named.items()}
                overload(*arguments, **named, **dict(zip(kernel.writes, places, strict=True)))
            else:
                for place, result in zip(places, results_of(kernel, torch, overload, operands), strict=True):
                    place.copy_(result)

    return tvm_ffi.convert_func(compute, tensor_cls=torch.Tensor)
