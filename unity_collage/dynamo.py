"""``torch.compile(module, backend="unity_collage")``: the graphs that TorchDynamo captures become programs.

A graph is compiled when it first runs, with its weights as constants. TorchDynamo calls one graph for every instance of
a class. So there is a program for each set of weights, and a new one when they have changed. PyTorch does not count
changes through ``.data`` or numpy: call ``torch._dynamo.reset()`` after these. A graph that is refused runs as PyTorch
would run it, and a warning in the log says why.

A result that is a view of an input stays one: what is behind the graph may change either. Other results that share
elements are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from .compiler import compile as compile_model
from .errors import CollageError, ModelError, first_line
from .frontend.pytorch.export import exported
from .frontend.pytorch.stored import CHANGES
from .frontend.pytorch.views import ViewOfArgument, views_in
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
class _Part:
    """A result in the memory of an argument, which the caller may change afterwards."""

    place: int
    """The number of the argument."""
    view: ViewOfArgument


@dataclass(frozen=True, slots=True)
class _Taken:
    """What became of a graph for inputs of some sizes and some weights."""

    program: Program | None
    """None: PyTorch runs the graph."""
    results: tuple[Any, ...]
    """The known results, such as sizes; ``_TENSOR`` in place of each tensor, and views of arguments as ``_Part``."""
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
        return tuple(_returned(result, tensors, args) for result in taken.results)

    def _free(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The arguments of the program: tensors that are not weights."""
        pairs = zip(args, self._is_weight, strict=True)
        return [arg for arg, is_weight in pairs if isinstance(arg, torch.Tensor) and not is_weight]

    def _weights(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The arguments that are constants of the program."""
        pairs = zip(args, self._is_weight, strict=True)
        return [arg for arg, is_weight in pairs if isinstance(arg, torch.Tensor) and is_weight]

    def _places(self, program: ExportedProgram, args: Sequence[Any]) -> dict[str, int]:
        """The numbers of the arguments by the names of the inputs of the exported graph."""
        tensors = [place for place, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
        free = iter([place for place in tensors if not self._is_weight[place]])
        weights = {_weight_name(place): place for place in tensors if self._is_weight[place]}
        specs = program.graph_signature.input_specs
        found = {spec.arg.name: weights.get(spec.target or "") for spec in specs}
        found |= {spec.arg.name: next(free) for spec in specs if spec.kind is InputKind.USER_INPUT}
        return {name: place for name, place in found.items() if place is not None}

    def _compiled(self, args: Sequence[Any], changes: int) -> _Taken:
        """The program; without one the reason is in the log."""
        weights = tuple(weight.detach() for weight in self._weights(args))
        versions = tuple(map(_version, weights))
        try:
            _check_gradients(args)
            if changes > _MOST_CHANGES:
                raise ModelError("its weights or buffers change again and again between calls")
            taken = exported(_Closed(self._graph, args, self._is_weight), tuple(self._free(args)))
            _check_changes(taken)
            results = _results(taken, self._places(taken, args))
            program = compile_model(taken, **{"eager": False, **self._options})
            _check_devices(program.device, args)
            return _Taken(program, results, weights, versions, changes)
        except CollageError as error:
            if not self._has_fallback:
                raise
            _LOG.warning("a graph of torch.compile runs without unity_collage: %s", error)
            return _Taken(None, (), weights, versions, changes)


def _key(arg: Any, is_weight: bool) -> Any:
    """What the program of a graph depends on: sizes and types, the place of a weight, or the value of a number."""
    if not isinstance(arg, torch.Tensor):
        return arg
    strides = arg.stride() if arg.layout is torch.strided else ()
    return (tuple(arg.shape), arg.dtype, strides, *((arg.data_ptr(),) if is_weight else ()))


def _version(weight: torch.Tensor) -> int:
    """How often a tensor was written to; PyTorch does not count that for tensors of inference mode."""
    return 0 if weight.is_inference() else weight._version


def _results(program: ExportedProgram, places: Mapping[str, int]) -> tuple[Any, ...]:
    """The results of a graph that are known when it is compiled, such as sizes, and where to take the others.

    ``places``: the numbers of arguments by the names of inputs.
    """
    views = views_in(program)
    if constant := next((view.source for view in views.values() if view.source not in places), None):
        raise ModelError(f"a result is in the memory of its constant {constant}")
    parts = {name: _Part(places[view.source], view) for name, view in views.items()}
    specs = program.graph_signature.output_specs
    wanted = [spec.arg for spec in specs if spec.kind is OutputKind.USER_OUTPUT]
    return tuple(
        arg.value if isinstance(arg, ConstantArgument) else parts.get(arg.name, _TENSOR) for arg in wanted
    )


def _returned(result: Any, tensors: Iterator[Any], args: Sequence[Any]) -> Any:
    """A result of a call; ``tensors``: the next results of the program."""
    if result is not _TENSOR and not isinstance(result, _Part):
        return result
    found = next(tensors)
    return result.view.of(args[result.place]) if isinstance(result, _Part) else torch.from_dlpack(found)


def _is_weight(node: fx.Node) -> bool:
    """Whether TorchDynamo knows an input as a parameter or buffer of a module."""
    described = node.meta.get("tensor_dict") or {}
    return "_dynamo_static_input_type" in described


def _check_gradients(args: Sequence[Any]) -> None:
    """Refuses where results would need gradients, which a program does not have."""
    wants = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
    if wants and torch.is_grad_enabled():
        raise ModelError("its results need gradients: call the module inside torch.no_grad()")


def _check_changes(program: ExportedProgram) -> None:
    """Refuses where a run would change more than results; changes are results in a decomposed program."""
    try:
        specs = program.run_decompositions({}).graph_signature.output_specs
    except Exception as error:  # torch raises whatever its decompositions raise
        raise ModelError(f"torch cannot decompose it: {first_line(error)}") from error
    if any(spec.kind in CHANGES for spec in specs):
        raise ModelError("it changes a weight, a buffer or an input; a program writes only its results")


def _check_devices(device: str, args: Sequence[Any]) -> None:
    """Refuses where tensors are not on the ``device`` of the program; numbers on the CPU may be with any others."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor) and (arg.ndim > 0 or not arg.is_cpu)]
    for place in dict.fromkeys(tensor.device for tensor in tensors):
        if place.type != device:
            raise ModelError(f"a tensor is on {place}, and the program runs on {device}")


def _weight_name(place: int) -> str:
    return f"weight_{place}"


class _Closed(torch.nn.Module):
    """A graph whose weights and sizes are its own: tensors that are not weights are left as arguments."""

    def __init__(self, graph: fx.GraphModule, args: Sequence[Any], is_weight: Sequence[bool]) -> None:
        super().__init__()
        self._inner = graph
        self._known: list[Any] = []
        for place, (arg, known) in enumerate(zip(args, is_weight, strict=True)):
            if isinstance(arg, torch.Tensor) and known:
                self.register_buffer(_weight_name(place), arg.detach())
                self._known.append(_weight_name(place))
            else:
                self._known.append(None if isinstance(arg, torch.Tensor) else (arg,))

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = iter(inputs)
        return self._inner(*(self._argument(known, given) for known in self._known))

    def _argument(self, known: Any, given: Any) -> Any:
        if known is None:
            return next(given)
        return getattr(self, known) if isinstance(known, str) else known[0]
