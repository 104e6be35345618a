"""The backends: toolchains that make kernels."""

from .base import Backend
from .registry import every, get, known, register_codegens, register_relax_ext, select

__all__ = ["Backend", "every", "get", "known", "register_codegens", "register_relax_ext", "select"]
