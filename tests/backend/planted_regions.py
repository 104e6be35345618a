"""Backends of regions with broken models: one computes something else, one has an unknown operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import onnx
from tvm import relax
from tvm.runtime import Module

from unity_collage.backends.base import Backend
from unity_collage.backends.runtimes.backend import ONNXRUNTIME
from unity_collage.backends.runtimes.lowering import session_of
from unity_collage.sessions import RUNTIMES, session_module

_SPOILT = {"lies": ("Exp", "Abs"), "does_not_compile": ("Rectify", "Rectify")}
"""What stands in place of ReLU, and behind each product."""


def _generate(
    fault: str, functions: Sequence[relax.Function], _options: Mapping[str, Any], _names: Mapping[Any, str]
) -> list[Module]:
    models = [session_of(func, RUNTIMES["onnxruntime"]) for func in functions]
    spoilt = [replace(model, onnx=_spoilt(model.onnx, *_SPOILT[fault])) for model in models]
    return [session_module("onnxruntime", spoilt)]


def _spoilt(text: bytes, relu: str, identity: str) -> bytes:
    model = onnx.load_from_string(text)
    for node in model.graph.node:
        if node.op_type == "Relu":
            node.op_type = relu
        elif node.op_type == "Identity" and not any(n.op_type == relu for n in model.graph.node):
            node.op_type = identity
    return model.SerializeToString()


def _backend(fault: str) -> Backend:
    return replace(ONNXRUNTIME, name=f"fake_{fault}", codegen=partial(_generate, fault))


REGIONS = SimpleNamespace(**{fault: _backend(fault) for fault in _SPOILT})
"""By fault, as values that entry points can name."""
