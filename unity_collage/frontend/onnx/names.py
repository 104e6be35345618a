"""Names of values in ONNX models, as the names of variables."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping

import onnx
from tvm import relax

from ...rewrites.own_names import renamed

_TAKEN = frozenset({"R", "T", "I", "cls"})
"""Names that TVMScript itself uses."""


def safe(name: str) -> str:
    """``name`` as an identifier that TVMScript prints and parses; letters outside of ASCII become their numbers."""
    ascii_name = "".join(c if c.isascii() or not c.isalnum() else f"u{ord(c):x}" for c in name)
    text = re.sub(r"\W", "_", ascii_name, flags=re.ASCII).lstrip("_") or "value"
    if text[0].isdigit():
        return f"v{text}"
    return f"{text}_" if keyword.iskeyword(text) or text in _TAKEN else text


def meanings(model: onnx.ModelProto, name: str) -> Iterator[str]:
    """Names of values to look for instead of the node or value ``name``: its own, then those computed from them."""
    nodes = list(model.graph.node)
    values = [name, *(value for node in nodes if node.name == name for value in node.output)]
    known = dict.fromkeys(value for value in values if value)
    for value in known:
        yield safe(value)
    count = 0
    while count < len(known):  # again for nodes that stand before those that they read
        count = len(known)
        for node in nodes:
            new = [value for value in node.output if value and value not in known]
            if new and any(source in known for source in node.input):
                known.update(dict.fromkeys(new))
                yield from map(safe, new)


def own_names(model: onnx.ModelProto) -> list[str]:
    """The names of nodes and of the values that they compute, as the model has them."""
    names = (name for node in model.graph.node for name in (node.name, *node.output))
    return [name for name in dict.fromkeys(names) if name]


def with_names(func: relax.Function, names: Mapping[relax.Expr, str]) -> relax.Function:
    """``func`` with the given names on the variables that are bound outside of branches."""
    bound = [binding.var for block in func.body.blocks for binding in block.bindings]
    fresh = {var: type(var)(names[var], var.ty) for var in bound if names.get(var, var.name) != var.name}
    return renamed(func, fresh)
