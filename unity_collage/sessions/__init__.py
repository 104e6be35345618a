"""Inference runtimes that take whole models in ONNX's format: their sessions as functions of a program."""

from .module import SessionModel, session_module
from .runtimes import RUNTIMES, InferenceRuntime, available
from .whole_model import WHOLE, WholeModel, whole_model

__all__ = [
    "RUNTIMES",
    "WHOLE",
    "InferenceRuntime",
    "SessionModel",
    "WholeModel",
    "available",
    "session_module",
    "whole_model",
]
