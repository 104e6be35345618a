"""A kernel alone: its function, the values that it gets in the model, and its error on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from ... import reference
from ...annotations import CANDIDATES
from ...errors import CollageError, first_line
from ...feedback.builder import finished
from ...graph import DataflowGraph, extract, outside_vars
from ...graph.extract import LIFTED, large_constants, prim_funcs
from ...lowering.build import build
from ...plan.composite_part import CompositePart
from ...profile.accuracy import deviation
from ...program import Program
from .partial import OffloadedKernel, PartialPrograms


@dataclass(frozen=True, slots=True)
class KernelAlone:
    """The function that a kernel computes, and arguments for it."""

    module: IRModule
    """``main`` computes what the kernel does; its constants are inside."""
    arguments: tuple[np.ndarray, ...]
    """For the parameters of ``main``, in order."""
    lifted: IRModule
    """The same with its large constants as parameters behind the others."""
    weights: tuple[np.ndarray, ...]
    """For these parameters."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, each once."""
        return _distinct(self.module)

    @property
    def names_of_weights(self) -> tuple[str, ...]:
        """The names of the parameters of ``lifted`` that are weights."""
        return _distinct(self.lifted)[len(self.arguments) :]


def _distinct(module: IRModule) -> tuple[str, ...]:
    """The names of the parameters of ``main``; repeated names get a number."""
    found: list[str] = []
    for param in module["main"].params:
        name = str(param.name)
        found.append(name if name not in found else f"{name}_{len(found)}")
    return tuple(found)


def alone(
    programs: PartialPrograms, kernel: OffloadedKernel, inputs: Mapping[str, np.ndarray]
) -> KernelAlone:
    """A kernel of a plan with the values that it gets on these inputs, which numpy computes.

    Raises CollageError with the reason where numpy cannot compute them.
    """
    if kernel.function != "main":
        raise CollageError(
            f"it is in {kernel.function}, whose values are not computed: fix the sizes of the model"
        )
    graph = programs.graph_of(kernel)
    sub = kernel.candidate.sub_graph(graph)
    given = [inputs[name] for name in programs.whole.input_names]
    try:
        values = _values(graph.func, programs.annotated, outside_vars(sub), given)
    except reference.Unsupported as error:
        raise CollageError(f"numpy cannot compute what it reads: {first_line(error)}") from error
    functions: dict[Any, Any] = dict(prim_funcs(sub))
    inside, lifted = (
        IRModule({**functions, "main": func.with_attr("global_symbol", "main")})
        for func in (extract(sub), extract(sub, lift_constants=True).without_attr(LIFTED))
    )
    weights = tuple(constant.value.numpy() for constant in large_constants(sub))
    return KernelAlone(inside, tuple(values), lifted, weights)


def error_of(programs: PartialPrograms, kernel: OffloadedKernel, found: KernelAlone) -> float:
    """The largest error of a kernel alone over the range of a result; raises CollageError where it cannot run."""
    try:
        expected = reference.run(found.module["main"], list(found.arguments), found.module)
        got = _flat(_program(programs, kernel, found.module)(*found.arguments))
    except CollageError:
        raise
    except Exception as error:  # numpy lacks an operator, or a foreign compiler failed
        raise CollageError(first_line(error)) from error
    return max(deviation(value, right).largest for value, right in zip(got, expected, strict=True))


def _program(programs: PartialPrograms, kernel: OffloadedKernel, module: IRModule) -> Program:
    """The program of one kernel."""
    graph = DataflowGraph(module["main"], module)
    bindings = [binding for block in graph.func.body.blocks for binding in block.bindings]
    inside = sorted(kernel.candidate.indexes)
    place = {index: graph.index_of[bindings[number].var] for number, index in enumerate(inside)}
    parts = tuple(
        CompositePart(part.label, tuple(place[index] for index in part.indexes))
        for part in kernel.candidate.composites
    )
    indexes = tuple(sorted(place.values()))
    only = replace(kernel.candidate, id=0, indexes=indexes, hidden=(), composites=parts)
    functions = {
        **dict(module.functions_items()),
        module.get_global_var("main"): CANDIDATES.write(graph.func, (only,)),
    }
    target = programs.target
    with target:
        return Program(build(finished(IRModule(functions), {"main": (0,)}, target), target), target=target)


def _values(
    func: relax.Function, mod: IRModule, wanted: Sequence[relax.Var], inputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The values of variables of ``func`` on these inputs, as numpy computes them; raises Unsupported."""
    body = relax.SeqExpr(func.body.blocks, relax.Tuple(list(wanted)))
    asked = relax.Function(func.params, body, relax.TupleType([var.ty for var in wanted]), func.is_pure)
    return [np.ascontiguousarray(value) for value in reference.run(asked, list(inputs), mod)]


def _flat(result: Any) -> list[np.ndarray]:
    return (
        [result.numpy()] if hasattr(result, "numpy") else [array for part in result for array in _flat(part)]
    )
