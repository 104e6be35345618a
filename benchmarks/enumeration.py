"""How long enumerating candidates takes, how many there are, and how much memory it needs.

    python benchmarks/enumeration.py [--bindings 1500] [--only chain]

Each made-up network is enumerated by TVM's kinds (Combine), by joining anything that touches, and as cones, all
of depth 8. Time is that of the process, without computing the kinds of operators and their dependencies.
The peak of Python's memory is taken in a second run, since tracing slows the first one down.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

from tvm import relax
from tvm.relax import op

from unity_collage.graph import DataflowGraph, Limits, OpKind
from unity_collage.rules import (
    ByKind,
    Combine,
    Constant,
    Declined,
    FusionCone,
    JoinAnything,
    OpCallByKind,
    Rule,
    TupleArgument,
    TupleProjection,
)

BY_KIND = (
    ByKind(OpKind.OUT_EWISE_FUSABLE, OpKind.BROADCAST),
    ByKind(OpKind.BROADCAST, OpKind.REDUCTION),
    ByKind(OpKind.INJECTIVE, OpKind.INJECTIVE),
    TupleArgument(),
    TupleProjection(),
    Constant(),
)
RULES: dict[str, Rule] = {
    "by kind": Combine(OpCallByKind(), BY_KIND),
    "anything": Combine(OpCallByKind(), (JoinAnything(),)),
    "anything, 2 exits": Combine(
        OpCallByKind(), (JoinAnything(),), Limits(max_depth=8, max_exits=2, allow_taps=True)
    ),
    "cone": FusionCone(),
    "cone, recomputing": FusionCone(recompute=True),
}


class Builder:
    """Builds a function of about ``bindings`` bindings on feature maps of one shape."""

    def __init__(self, bindings: int):
        self.bindings = bindings
        self.count = 0
        self.block = relax.BlockBuilder()
        self.x = relax.Var("x", relax.TensorType((1, 8, 8, 8), "float32"))
        self.weights = {k: relax.Var(f"w{k}", relax.TensorType((8, 8, k, k), "float32")) for k in (1, 3)}
        self.bias = relax.Var("b", relax.TensorType((1, 8, 1, 1), "float32"))

    @property
    def is_full(self) -> bool:
        return self.count >= self.bindings

    def emit(self, value: relax.Expr) -> relax.Var:
        self.count += 1
        return self.block.emit(value)

    def conv(self, data: relax.Expr, taps: int) -> relax.Var:
        conv = self.emit(op.nn.conv2d(data, self.weights[taps], padding=taps // 2))
        return self.emit(op.nn.relu(self.emit(op.add(conv, self.bias))))

    def function(self, net: Callable[[Builder, relax.Expr], relax.Expr]) -> relax.Function:
        params = [self.x, *self.weights.values(), self.bias]
        with self.block.function("main", params):
            with self.block.dataflow():
                value: relax.Expr = self.x
                while not self.is_full:
                    value = net(self, value)
                result = self.block.emit_output(op.nn.relu(value))
            self.block.emit_func_output(result)
        return self.block.get()["main"]


def chain(b: Builder, x: relax.Expr) -> relax.Expr:
    return b.emit(op.tanh(b.emit(op.exp(b.emit(op.nn.relu(x))))))


def ladder(b: Builder, x: relax.Expr) -> relax.Expr:
    """x + relu(exp(x)) again and again: every value has two readers."""
    return b.emit(op.add(x, b.emit(op.nn.relu(b.emit(op.exp(x))))))


def inception(b: Builder, x: relax.Expr) -> relax.Expr:
    """Four branches side by side, concatenated, and brought back to the old number of channels."""
    branches = [b.conv(x, 1), b.conv(b.conv(x, 1), 3), b.conv(b.conv(b.conv(x, 1), 3), 3)]
    branches.append(b.conv(b.emit(op.nn.max_pool2d(x, (3, 3), padding=1)), 1))
    joined = b.emit(op.concat(branches, axis=1))
    return b.emit(op.mean(b.emit(op.reshape(joined, (1, 4, 8, 8, 8))), axis=1))


def nasnet(b: Builder, x: relax.Expr) -> relax.Expr:
    """Five sums of two branches each, where later ones read earlier ones."""
    states = [x, b.emit(op.nn.relu(x))]
    for i in range(5):
        left, right = b.conv(states[i], 3), b.emit(op.exp(states[i + 1]))
        states.append(b.emit(op.nn.relu(b.emit(op.add(left, right)))))
    total = states[0]
    for state in states[1:]:
        total = b.emit(op.add(total, state))
    return total


def dense(b: Builder, x: relax.Expr) -> relax.Expr:
    """Eight cheap operators, each the sum of two earlier ones: nothing but fusion, in every combination."""
    states = [x, b.emit(op.exp(x))]
    for i in range(8):
        states.append(b.emit(op.add(states[i], states[i + 1])))
    return states[-1]


NETS: dict[str, Callable[[Builder, relax.Expr], relax.Expr]] = {
    net.__name__: net for net in (chain, ladder, inception, nasnet, dense)
}


def enumerate_all(rule: Rule, graph: DataflowGraph) -> tuple[int, int]:
    """How many proposals and refusals there are."""
    found = declined = 0
    kept = []
    for proposal in rule.apply(graph):
        kept.append(proposal)
        if isinstance(proposal, Declined):
            declined += 1
        else:
            found += 1
    return found, declined


def peak_megabytes(rule: Rule, graph: DataflowGraph) -> float:
    tracemalloc.start()
    enumerate_all(rule, graph)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bindings", type=int, default=1500)
    parser.add_argument("--only", choices=sorted(NETS))
    options = parser.parse_args()
    print(
        f"{'network':10s} {'rule':17s} {'bindings':>8s} {'proposals':>9s} {'declined':>8s} {'s':>6s} {'peak MB':>8s}"
    )
    for name, net in NETS.items():
        if options.only not in (None, name):
            continue
        graph = DataflowGraph(Builder(options.bindings).function(net))
        assert graph.kinds and graph.upstream
        for title, rule in RULES.items():
            start = time.process_time()
            found, declined = enumerate_all(rule, graph)
            seconds = time.process_time() - start
            peak = peak_megabytes(rule, graph)
            print(
                f"{name:10s} {title:17s} {len(graph):8d} {found:9d} {declined:8d} {seconds:6.2f} {peak:8.1f}"
            )


if __name__ == "__main__":
    main()
