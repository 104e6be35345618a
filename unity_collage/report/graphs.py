"""A plan as a graph for other viewers: an ONNX model for Netron, and text for Graphviz."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import onnx
from onnx import helper

from ..plan.explanation import Explanation
from .cells import duration


def netron_graph(title: str, explanations: Mapping[str, Explanation]) -> bytes:
    """An ONNX model for Netron, with a node for each kernel and its backend as domain; it cannot be run.

    Costs in seconds, operators and bindings are attributes. Values have the names of the bindings that kernels read.
    Kernels of several functions stand side by side.
    """
    nodes = [node for name, each in explanations.items() for node in _nodes(name, each)]
    graph = helper.make_graph(nodes, title, [], [])
    domains = sorted({node.domain for node in nodes})
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, 1) for domain in domains],
        producer_name="unity_collage",
    ).SerializeToString()


def dot_graph(title: str, explanations: Mapping[str, Explanation]) -> str:
    """The kernels and what they read, in Graphviz's language."""
    lines = [f"digraph {_quoted(title)} {{", "  node [shape=box];"]
    for name, each in explanations.items():
        for number, kernel in enumerate(each.kernels):
            chosen = each.by_id[kernel.candidate]
            seconds = each.costs[chosen.cost].seconds
            cost = "" if seconds is None else f"\\n{duration(seconds)}"
            label = f"{chosen.label}\\n{chosen.backend}{cost}"
            lines.append(f"  {_quoted(f'{name}:{number}')} [label={_quoted(label)}];")
            lines += [
                f"  {_quoted(f'{name}:{source}')} -> {_quoted(f'{name}:{number}')};"
                for source in kernel.reads
            ]
    return "\n".join([*lines, "}"]) + "\n"


def _nodes(function: str, explained: Explanation) -> Iterator[onnx.NodeProto]:
    names = {number: binding.name for number, binding in enumerate(explained.bindings)}
    for number, kernel in enumerate(explained.kernels):
        chosen = explained.by_id[kernel.candidate]
        cost = explained.costs[chosen.cost]
        figures = {"seconds": cost.seconds, "low": cost.low, "high": cost.high}
        yield helper.make_node(
            re.sub(r"[^A-Za-z0-9_.+]", "_", chosen.label),
            [f"{function}.{names[index]}" for index in kernel.inputs],
            [f"{function}.{names[index]}" for index in chosen.bindings if index not in chosen.hidden],
            name=f"{function}.{kernel.function or number}",
            domain=chosen.backend,
            bindings=[names[index] for index in chosen.bindings],
            operators=[explained.bindings[index].op for index in chosen.bindings],
            **{name: value for name, value in figures.items() if value is not None},
        )


def _quoted(text: str) -> str:
    escaped = text.replace('"', "'")
    return f'"{escaped}"'
