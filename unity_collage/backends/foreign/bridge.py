"""The bridge: backends that other packages have registered with TVM, usable here without further code.

A name is such a backend if TVM has a code generator ``relax.ext.<name>`` for it, and patterns or predicates. Patterns
``<name>.*`` are in TVM's global table (``relax.backend.register_patterns``). Predicates are operator attributes
``target.<name>``. Nothing is cached: each question reads the tables of TVM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NoReturn

import tvm
from tvm.relax.backend import get_pattern, get_patterns_with_prefix
from tvm_ffi.registry import list_global_func_names

from ...annotations import plain
from ...errors import UnavailableBackend
from ...graph import DataflowGraph, IndexSet
from ...rules import Rule, Union
from ..base import Backend, Codegen
from .pattern_match import Matcher
from .rules import OperatorAttributes, PatternTable, predicates

_CODEGEN = "relax.ext."


def names(ours: Iterable[str]) -> list[str]:
    """The names, sorted, for which TVM has patterns or predicates.

    Attributes of operators cannot be listed, so predicates are looked up for ``ours`` and the names of code generators.
    """
    prefixes = {str(pattern.name).split(".", 1)[0] for pattern in get_patterns_with_prefix("")}
    made = {name.removeprefix(_CODEGEN) for name in list_global_func_names() if name.startswith(_CODEGEN)}
    return sorted(prefixes | {name for name in made | set(ours) if predicates(name)})


def find(name: str) -> Backend | None:
    """The backend that TVM's tables define for ``name``, or None if they have nothing under that name.

    A code generator without patterns and predicates is a backend that makes no proposals.
    """
    codegen = _codegen(name)
    if codegen is None and origin(name) is None:
        return None
    return Backend(
        name=name,
        rule=lambda _target: _rule(name),
        why_unavailable=lambda: why_no_codegen(name),
        fingerprint=lambda: _fingerprint(name),
        codegen=codegen or (lambda *_args: _refuse(name)),
        takes_options=True,
    )


def origin(name: str) -> str | None:
    """The table in which TVM has rules for ``name``, as text for messages, or None if there are none."""
    patterns = _pattern_names(name)
    if patterns:
        return f"TVM's pattern table ({', '.join(patterns)})"
    ops = sorted(predicates(name))
    return f"the operator attribute target.{name} ({', '.join(ops)})" if ops else None


def why_no_codegen(name: str) -> str | None:
    """Why no kernels can be made for ``name``, or None."""
    return None if _codegen(name) is not None else f"there is no code generator {_CODEGEN}{name} in TVM"


def composite_attrs(name: str, graph: DataflowGraph, inside: IndexSet) -> dict[str, object]:
    """The attributes that the pattern ``name`` of TVM's table sets on the ``Composite`` function of ``inside``."""
    pattern = get_pattern(name)
    if pattern is None or pattern.attrs_getter is None:
        return {}
    match = Matcher(graph).match(pattern, graph.nodes[inside.bit_length() - 1])
    return {} if match is None or match.inside != inside else plain(pattern.attrs_getter(match.annotated))


def _rule(name: str) -> Rule:
    return Union((PatternTable(name), OperatorAttributes(name)))


def _pattern_names(name: str) -> list[str]:
    return [str(pattern.name) for pattern in get_patterns_with_prefix(f"{name}.")]


def _fingerprint(name: str) -> str:
    """The version of TVM and a digest of the rules: nothing else is known of a library behind TVM."""
    taken = "\n".join((*sorted(_pattern_names(name)), *sorted(predicates(name))))
    return f"{name} of tvm {tvm.__version__}, rules {hashlib.sha256(taken.encode()).hexdigest()[:12]}"


def _codegen(name: str) -> Codegen | None:
    return tvm.get_global_func(f"{_CODEGEN}{name}", allow_missing=True)


def _refuse(name: str) -> NoReturn:
    raise UnavailableBackend(f"backend {name} cannot be used here: {why_no_codegen(name)}")
