"""What tests of rules ask of a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relax
from tvm.script import relax as R

from unity_collage.graph import DataflowGraph
from unity_collage.index_set import to_text
from unity_collage.rules import Found, Rule
from unity_collage.rules.base import Declined


def proposals(rule: Rule, graph: DataflowGraph | relax.Function) -> list[Found]:
    graph = graph if isinstance(graph, DataflowGraph) else DataflowGraph(graph)
    return [p for p in rule.apply(graph) if isinstance(p, Found)]


def found(rule: Rule, func: DataflowGraph | relax.Function) -> list[str]:
    return sorted(to_text(p.inside) for p in proposals(rule, func))


def reasons(rule: Rule, func: relax.Function) -> list[str]:
    return [p.reason for p in rule.apply(DataflowGraph(func)) if isinstance(p, Declined)]


OPERATORS: tuple[tuple[int, Callable[..., relax.Expr]], ...] = (
    (1, R.nn.relu),
    (1, R.permute_dims),
    (1, R.nn.softmax),
    (2, R.add),
    (2, R.matmul),
)
"""Of one to three inputs each: an operator of each kind that keeps the shape of a square matrix."""


def random_graph(steps: Sequence[tuple[int, int, int]]) -> relax.Function:
    """A function with one binding a step ``(operator, first input, second input)``: inputs are counted back from
    the last binding and beyond that are the parameters. Unread values are returned."""
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    builder = relax.BlockBuilder()
    values: list[relax.Var] = [x]
    read: set[int] = set()
    with builder.function("main", [x]):
        with builder.dataflow():
            for operator, *inputs in steps:
                arity, make = OPERATORS[operator]
                positions = [max(0, len(values) - 1 - back) for back in inputs[:arity]]
                read.update(positions)
                values.append(builder.emit(make(*(values[i] for i in positions))))
            unread = [value for i, value in enumerate(values) if i and i not in read]
            result = builder.emit_output(relax.Tuple(unread))
        builder.emit_func_output(result)
    return builder.get()["main"]
