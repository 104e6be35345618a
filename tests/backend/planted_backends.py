"""Backends with defects that the kernels of ``testing.fake_backend`` do not have.

Each takes single calls of relu, or says what else; its kernels compute by numpy as the fakes' do. Where a backend has
several defects, each is for another check, and none hides another.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tvm import relax
from tvm.ir import GenericConst
from tvm.runtime import Module

from unity_collage import runtime
from unity_collage.backends.base import Backend
from unity_collage.graph import DataflowGraph
from unity_collage.rules import Declined, Found, OpPredicate
from unity_collage.testing import fake_kernels

Functions = Sequence[relax.Function]
RIGHT = fake_kernels.codegen("none")


def misbehaving(body: fake_kernels.Misbehaviour) -> Any:
    """A code generator of kernels that do ``body`` when they have computed."""

    def generate(functions: Functions, options: Mapping[str, Any], names: Mapping[Any, str]) -> list[Module]:
        with patch.dict(fake_kernels.MISBEHAVIOURS, planted=body):
            return fake_kernels.codegen("planted")(functions, options, names)

    return generate


def takes(call: relax.Call) -> str | None:
    """Accepts relu and nothing else."""
    return None if call.op.name == "relax.nn.relu" else "it is not a relu"


def says_false(call: relax.Call) -> Any:
    """Accepts exp, whose numbers may differ in the last digits, and refuses relu by False."""
    return False if call.op.name == "relax.nn.relu" else None


def says_nothing(call: relax.Call) -> str | None:
    return "" if call.op.name == "relax.exp" else None


@dataclass(frozen=True)
class Whole:
    """Proposes everything as one kernel."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        yield Found((1 << len(graph.nodes)) - 1, "whole", "whole")


@dataclass(frozen=True)
class Ends:
    """Proposes the first and the last node as one kernel, without what is between."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        yield Found(1 | 1 << (len(graph.nodes) - 1), "ends", "ends")


@dataclass(frozen=True)
class Shuffled:
    """Proposes every node, in an order that differs between processes."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for node in sorted(graph.nodes, key=lambda node: hash((os.getpid(), node.index))):
            yield Found(1 << node.index, "shuffled", "node")


@dataclass(frozen=True)
class Raising:
    """Raises for every graph."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        raise KeyError("shape")


class Unhashable:
    """A rule function that compares by value and so has no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)

    def __call__(self, _target: Any) -> Whole:
        return Whole()


def _ops(why_not: Any, *names: str) -> Any:
    rule = OpPredicate("planted", frozenset(f"relax.{name}" for name in names), why_not)
    return lambda _target: rule


def _version() -> str:
    return "planted 1.0"


def _pid() -> str:
    return f"planted {os.getpid()}"


def _loading() -> str | None:
    ctypes.CDLL("libBrokenLocale.so.1")
    return None


def _wrong_with_constants(functions: Functions, *rest: Any) -> list[Module]:
    found: list[Any] = []
    for func in functions:
        relax.analysis.post_order_visit(func.body, found.append)
    wrong = any(isinstance(expr, GenericConst) for expr in found)
    return fake_kernels.codegen("wrong_numbers" if wrong else "none")(functions, *rest)


def _only_the_first(functions: Functions, *rest: Any) -> list[Module]:
    return RIGHT(functions[:1], *rest)


def _constants_of_the_first(functions: Functions, *rest: Any) -> list[Module]:
    symbols = [func.attrs["global_symbol"] for func in functions]
    return RIGHT([functions[0].with_attr("global_symbol", symbol) for symbol in symbols], *rest)


def _second_openmp(functions: Functions, *rest: Any) -> list[Module]:
    runtime.load("onednn")  # brings libgomp, but starts no thread of it
    original = Path(runtime.openmp_runtimes()[0]).resolve()
    copy = Path(tempfile.mkdtemp()) / original.name
    shutil.copy(original, copy)
    ctypes.CDLL(str(copy))
    return RIGHT(functions, *rest)


def _aborting(functions: Functions, *rest: Any) -> list[Module]:
    if "R.exp" in str(functions[0]):
        os.abort()
    return RIGHT(functions, *rest)


def _swap(_inputs: Any, outputs: Any) -> None:
    first = outputs[0].copy()
    outputs[0][...], outputs[1][...] = outputs[1], first


_runs = itertools.count(1)


def _drift_and_start_thread(_inputs: Any, outputs: Any) -> None:
    outputs[0] *= 1 + 1e-6 * next(_runs)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


RELU = Backend("relu", _ops(takes, "nn.relu", "exp"), lambda: None, _version, RIGHT)
"""Without a defect, but for the export: its kernels are there in this process only."""
WHOLE = replace(RELU, name="whole", rule=lambda _target: Whole())

BAD_NAME = replace(RELU, name="re lu")
UNHASHABLE = replace(RELU, rule=Unhashable())
LOADING = replace(
    RELU,
    rule=_ops(says_false, "nn.relu", "exp"),
    why_unavailable=_loading,
    fingerprint=_pid,
    codegen=misbehaving(_drift_and_start_thread),
)
NAMELESS = replace(
    RELU, rule=_ops(says_nothing, "nn.relu", "exp"), fingerprint=lambda: " ", codegen=_second_openmp
)
TWO_LINES = replace(RELU, fingerprint=lambda: "relu\n1.0", codegen=_aborting)
EMPTY_REASON = replace(RELU, why_unavailable=lambda: "")
UNAVAILABLE = replace(RELU, why_unavailable=lambda: "there is no librelu.so")
ENDS = replace(RELU, rule=lambda _target: Ends())
RAISING = replace(RELU, rule=lambda _target: Raising())
SHUFFLED = replace(RELU, rule=lambda _target: Shuffled())
SWAPPING = replace(WHOLE, codegen=misbehaving(_swap))
NO_CONSTANTS = replace(WHOLE, codegen=_wrong_with_constants)
ONLY_THE_FIRST = replace(WHOLE, codegen=_only_the_first)
CONSTANTS_OF_THE_FIRST = replace(WHOLE, codegen=_constants_of_the_first)
