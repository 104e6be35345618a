"""Inference runtimes that take whole models in ONNX's format: their sessions as functions of a program."""

from .custom_op_libraries import session_options
from .module import SessionModel, aligned_bytes, session_module
from .runtimes import RUNTIMES, InferenceRuntime, available
from .whole_model import WHOLE, WholeModel, whole_model, why_not_known

__all__ = [
    "RUNTIMES",
    "WHOLE",
    "InferenceRuntime",
    "SessionModel",
    "WholeModel",
    "aligned_bytes",
    "available",
    "session_module",
    "session_options",
    "whole_model",
    "why_not_known",
]
