"""The toolchains that kernels can come from."""

from .base import Backend
from .registry import get, known, register_codegens, select

__all__ = ["Backend", "get", "known", "register_codegens", "select"]
