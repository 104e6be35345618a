"""Writes functions of Relax as ONNX models, for runtimes and viewers that read those."""

from .export import exported, why_not_exported
from .writer import NotExported

__all__ = ["NotExported", "exported", "why_not_exported"]
