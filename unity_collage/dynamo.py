"""``torch.compile(module, backend="unity_collage")``: the graphs that TorchDynamo captures become programs.

A graph is compiled when it first runs, with its weights as constants. TorchDynamo calls one graph for every instance of
a class. So there is a program for each set of weights, and a new one when they have changed. PyTorch does not count
changes through ``.data`` or numpy: call ``torch._dynamo.reset()`` after these. A graph that is refused runs as PyTorch
would run it, and a warning in the log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind

from .compiler import compile as compile_model
from .errors import CollageError, ModelError
from .frontend.pytorch.export import exported
from .frontend.pytorch.stored import CHANGES
from .program import Program

_LOG = logging.getLogger(__name__)
_MOST_CHANGES, _MOST_PROGRAMS = 3, 256
"""How often a graph is compiled again for changed weights, and how many programs of a graph are kept."""
_TENSOR = object()
"""In place of a result that is a tensor, which the program returns."""


def backend(graph: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """A function with the arguments and results of ``graph``.

    ``options`` are those of :func:`unity_collage.compile`, from ``torch.compile(..., options={...})``. With
    ``fallback=False`` a graph that is refused is an error. PyTorch itself is timed only with ``eager=True``: it takes
    two to three seconds more for each graph.
    """
    given = dict(options.pop("options", None) or {}) | {
        key: value for key, value in options.items() if key != "mode"
    }
    return torch._dynamo.disable(_Compiled(graph, bool(given.pop("fallback", True)), given))


@dataclass(frozen=True, slots=True)
class _Taken:
    """What became of a graph for inputs of some sizes and some weights."""

    program: Program | None
    """None: PyTorch runs the graph."""
    results: tuple[Any, ...]
    """The known results, such as sizes, with ``_TENSOR`` in place of each tensor."""
    weights: tuple[torch.Tensor, ...]
    """Their memory, which no other tensor gets meanwhile: a parameter may be given another one."""
    versions: tuple[int, ...]
    """How often each weight had been written to."""
    changes: int
    """How often the weights have changed between calls."""


class _Compiled:
    """A graph, and its programs by the sizes of its inputs and the weights."""

    def __init__(self, graph: fx.GraphModule, has_fallback: bool, options: dict[str, Any]) -> None:
        self._graph, self._has_fallback, self._options = graph, has_fallback, options
        inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._is_weight = [_is_weight(node) for node in inputs]
        self._taken: dict[Any, _Taken] = {}

    def __call__(self, *args: Any) -> Any:
        pairs = zip(args, self._is_weight, strict=True)
        key = (*(_key(arg, is_weight) for arg, is_weight in pairs), torch.is_grad_enabled())
        versions = tuple(map(_version, self._weights(args)))
        taken = self._taken.get(key)
        if taken is None or (taken.program is not None and taken.versions != versions):
            taken = self._taken[key] = self._compiled(args, 0 if taken is None else taken.changes + 1)
            if len(self._taken) > _MOST_PROGRAMS:
                del self._taken[next(iter(self._taken))]
        if taken.program is None:
            return self._graph(*args)
        found = taken.program(*(arg.detach().contiguous() for arg in self._free(args)))
        tensors = iter([found] if hasattr(found, "shape") else found)
        return tuple(
            torch.from_dlpack(next(tensors)) if result is _TENSOR else result for result in taken.results
        )

    def _free(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The arguments of the program: tensors that are not weights."""
        pairs = zip(args, self._is_weight, strict=True)
        return [arg for arg, is_weight in pairs if isinstance(arg, torch.Tensor) and not is_weight]

    def _weights(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The arguments that are constants of the program."""
        pairs = zip(args, self._is_weight, strict=True)
        return [arg for arg, is_weight in pairs if isinstance(arg, torch.Tensor) and is_weight]

    def _compiled(self, args: Sequence[Any], changes: int) -> _Taken:
        """The program; without one the reason is in the log."""
        weights = tuple(weight.detach() for weight in self._weights(args))
        versions = tuple(map(_version, weights))
        try:
            _check_gradients(args)
            if changes > _MOST_CHANGES:
                raise ModelError("its weights or buffers change again and again between calls")
            taken = exported(_Closed(self._graph, args, self._is_weight), tuple(self._free(args)))
            signature = taken.run_decompositions({}).graph_signature  # in which changes are results
            if any(spec.kind in CHANGES for spec in signature.output_specs):
                raise ModelError(
                    "it changes a weight, a buffer or an input; a program writes only its results"
                )
            return _Taken(
                compile_model(taken, **{"eager": False, **self._options}),
                _results(taken),
                weights,
                versions,
                changes,
            )
        except CollageError as error:
            if not self._has_fallback:
                raise
            _LOG.warning("a graph of torch.compile runs without unity_collage: %s", error)
            return _Taken(None, (), weights, versions, changes)


def _key(arg: Any, is_weight: bool) -> Any:
    """What the program of a graph depends on: sizes and types, the place of a weight, or the value of a number."""
    if not isinstance(arg, torch.Tensor):
        return arg
    return (tuple(arg.shape), arg.dtype, *((arg.data_ptr(), arg.stride()) if is_weight else ()))


def _version(weight: torch.Tensor) -> int:
    """How often a tensor was written to; PyTorch does not count that for tensors of inference mode."""
    return 0 if weight.is_inference() else weight._version


def _results(program: ExportedProgram) -> tuple[Any, ...]:
    """The results of a graph that are known when it is compiled, such as sizes."""
    specs = program.graph_signature.output_specs
    wanted = [spec.arg for spec in specs if spec.kind is OutputKind.USER_OUTPUT]
    return tuple(arg.value if isinstance(arg, ConstantArgument) else _TENSOR for arg in wanted)


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
