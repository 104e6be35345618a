"""The backends: toolchains that make kernels."""

from .base import Backend
from .library_calls import LibraryCall, register_library_call, unregister_library_call
from .registry import every, get, known, register_codegens, register_relax_ext, select

__all__ = [
    "Backend",
    "LibraryCall",
    "every",
    "get",
    "known",
    "register_codegens",
    "register_library_call",
    "register_relax_ext",
    "select",
    "unregister_library_call",
]
