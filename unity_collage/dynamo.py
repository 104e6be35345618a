"""``torch.compile(module, backend="unity_collage")``: the graphs that TorchDynamo captures become programs.

A graph is compiled when it first runs, with its weights as constants: change no weight afterwards. A graph that is
refused runs as PyTorch would run it, and a warning in the log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import OutputKind

from .compiler import compile as compile_model
from .errors import CollageError, ModelError
from .frontend.pytorch.export import exported
from .program import Program

_LOG = logging.getLogger(__name__)
_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def backend(graph: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """A function with the arguments and results of ``graph``.

    ``options`` are those of :func:`unity_collage.compile`, from ``torch.compile(..., options={...})``. With
    ``fallback=False`` a graph that is refused is an error.
    """
    given = dict(options.pop("options", None) or {}) | {
        key: value for key, value in options.items() if key != "mode"
    }
    return torch._dynamo.disable(_Compiled(graph, bool(given.pop("fallback", True)), given))


class _Compiled:
    """A graph, and its programs by the sizes of its inputs."""

    def __init__(self, graph: fx.GraphModule, has_fallback: bool, options: dict[str, Any]) -> None:
        self._graph, self._has_fallback, self._options = graph, has_fallback, options
        inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._is_weight = [_is_weight(node) for node in inputs]
        self._results = next(iter(reversed(graph.graph.nodes))).args[0]
        self._programs: dict[Any, Program | None] = {}

    def __call__(self, *args: Any) -> Any:
        key = tuple((tuple(arg.shape), arg.dtype) if isinstance(arg, torch.Tensor) else arg for arg in args)
        key = (*key, torch.is_grad_enabled())
        if key not in self._programs:
            self._programs[key] = self._program(args)
        program = self._programs[key]
        if program is None:
            return self._graph(*args)
        found = program(*(arg.detach().contiguous() for arg in self._free(args)))
        tensors = iter([found] if hasattr(found, "shape") else found)
        return tuple(
            torch.from_dlpack(next(tensors)) if isinstance(result, fx.Node) else result
            for result in self._results
        )

    def _free(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The arguments of the program: tensors that are not weights."""
        pairs = zip(args, self._is_weight, strict=True)
        return [arg for arg, is_weight in pairs if isinstance(arg, torch.Tensor) and not is_weight]

    def _program(self, args: Sequence[Any]) -> Program | None:
        """The program, or None with the reason in the log."""
        try:
            _check_gradients(args)
            taken = exported(_Closed(self._graph, args, self._is_weight), tuple(self._free(args)))
            signature = taken.run_decompositions({}).graph_signature  # in which changes are results
            if any(spec.kind in _CHANGES for spec in signature.output_specs):
                raise ModelError("it changes a buffer or an input, and a program writes only its results")
            return compile_model(taken, **self._options)
        except CollageError as error:
            if not self._has_fallback:
                raise
            _LOG.warning("a graph of torch.compile runs without unity_collage: %s", error)
            return None


def _is_weight(node: fx.Node) -> bool:
    """Whether TorchDynamo knows an input as a parameter or buffer of a module."""
    described = node.meta.get("tensor_dict") or {}
    return "_dynamo_static_input_type" in described


def _check_gradients(args: Sequence[Any]) -> None:
    """Refuses where results would need gradients, which a program does not have."""
    wants = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
    if wants and torch.is_grad_enabled():
        raise ModelError("its results need gradients: call the module inside torch.no_grad()")


class _Closed(torch.nn.Module):
    """A graph whose weights and sizes are its own: tensors that are not weights are left as arguments."""

    def __init__(self, graph: fx.GraphModule, args: Sequence[Any], is_weight: Sequence[bool]) -> None:
        super().__init__()
        self._inner = graph
        self._known: list[Any] = []
        for place, (arg, known) in enumerate(zip(args, is_weight, strict=True)):
            if isinstance(arg, torch.Tensor) and known:
                self.register_buffer(f"weight_{place}", arg.detach())
                self._known.append(f"weight_{place}")
            else:
                self._known.append(None if isinstance(arg, torch.Tensor) else (arg,))

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = iter(inputs)
        return self._inner(*(self._argument(known, given) for known in self._known))

    def _argument(self, known: Any, given: Any) -> Any:
        if known is None:
            return next(given)
        return getattr(self, known) if isinstance(known, str) else known[0]
