"""Whether a name can be that of one binding, kernel or operator, before costs and kernels are known."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES
from ..errors import CollageError, closest
from ..graph import DataflowGraph
from ..graph.prim_funcs import CALL_TIR
from ..graph.sub_graph import short_name
from ..plan.names import binding_names

_CLOSE = 5
"""How many close names a refusal has."""

_LISTED = 8
"""How many names are listed where one is ambiguous."""

_OUTLINED = "fused_"
"""The form of the names of kernel functions, which they get with the plan."""


def check_node(mod: IRModule, name: str, meanings: Collection[str] = (), others: Sequence[str] = ()) -> None:
    """Raises CollageError in one line if nothing in ``mod`` has this ``name``, or if several bindings have it.

    ``mod`` has candidates. ``meanings``: other names of the same; ``others``: more names that may have been meant.
    """
    bindings, operators, labels = _names(mod)
    if name.startswith(_OUTLINED) or "+" in name or name in bindings or name in labels:
        return  # kernels that are merged later, and their functions, are searched once there is a plan
    found = operators.get(name, [])
    if len(found) > 1:
        raise several_nodes(name, found)
    if not found and {*bindings, *operators, *labels}.isdisjoint(meanings):
        raise unknown_node(name, [*bindings, *operators, *labels, *others])


def unknown_node(name: str, known: Sequence[str]) -> CollageError:
    """The error for a name that is none of the ``known`` ones."""
    close = closest(name, list(dict.fromkeys(known)), _CLOSE)
    *first, last = close or [""]
    meant = f"{', '.join(first)} or {last}" if first else last
    hint = f"; did you mean {meant}?" if close else ""
    return CollageError(f"no binding, kernel or operator is called {name!r}{hint}")


def several_nodes(name: str, bindings: Sequence[str]) -> CollageError:
    """The error for a name that several bindings have."""
    most = ", ".join(bindings[:_LISTED]) + (", ..." if len(bindings) > _LISTED else "")
    return CollageError(f"{name!r} is {len(bindings)} bindings, name one of them: {most}")


def _names(mod: IRModule) -> tuple[dict[str, None], dict[str, list[str]], dict[str, None]]:
    """Of functions that have candidates: the names of bindings, bindings by operator, and labels of kernels."""
    functions = {
        gvar.name_hint: func
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function) and CANDIDATES.on(func)
    }
    bindings: dict[str, None] = {}
    operators: dict[str, list[str]] = {}
    labels: dict[str, None] = {}
    for function, func in functions.items():
        graph = DataflowGraph(func, mod)
        for node, name in zip(graph.nodes, binding_names(graph), strict=True):
            whole = f"{function}:{name}"
            bindings |= {name: None, whole: None}
            op = node.label if node.op == CALL_TIR else node.op
            for each in dict.fromkeys((op, short_name(op))):
                operators.setdefault(each, []).append(whole if len(functions) > 1 else name)
        several = [each for each in CANDIDATES.read(func) if len(each.indexes) > 1]
        labels |= dict.fromkeys(each.label for each in several)
    return bindings, operators, labels
