"""Which backends there are, in preference order, and how names become backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import entry_points

import tvm
from tvm.target import Target

from ..errors import CollageError, UnavailableBackend, UnknownBackend
from .base import Backend

ENTRY_POINT_GROUP = "unity_collage.backends"
"""Third parties name a Backend value here."""


@cache
def known() -> dict[str, Backend]:
    """All backends by name: ours in preference order, then those of installed packages by name."""
    from .onednn.backend import ONEDNN
    from .openblas.backend import OPENBLAS
    from .tvm_kernels import TVM

    found = {backend.name: (backend, "unity_collage") for backend in (ONEDNN, OPENBLAS, TVM)}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        backend = point.load()
        if backend.name in found:
            raise CollageError(
                f"two backends are named {backend.name!r}: one of {found[backend.name][1]}, one of {point.value}"
            )
        found[backend.name] = (backend, point.value)
    return {name: backend for name, (backend, _) in found.items()}


def find(name: str) -> Backend | None:
    """The backend ``name``, if there is one."""
    return known().get(name)


def get(name: str) -> Backend:
    """The backend ``name``; raises UnknownBackend with the names that exist."""
    backend = find(name)
    if backend is None:
        raise UnknownBackend(f"no backend named {name!r}; there are: {', '.join(known())}")
    return backend


def select(names: Sequence[str] | None, target: Target) -> tuple[Backend, ...]:
    """The backends to offer: ``names``, else the target's ``libs``, else all that are available.

    A backend that was named must be available: raises UnavailableBackend with its reason.
    """
    libs = target.attrs.get("libs")
    asked = names if names is not None else [str(lib) for lib in libs] if libs else None
    if asked is None:
        return tuple(backend for backend in known().values() if backend.why_unavailable() is None)
    chosen = tuple(dict.fromkeys(get(name) for name in asked))
    for backend in chosen:
        reason = backend.why_unavailable()
        if reason is not None:
            raise UnavailableBackend(f"backend {backend.name} cannot be used here: {reason}")
    return chosen


def register_codegens(backends: Iterable[Backend]) -> None:
    """Make ``backends`` reachable for TVM's stock ``RunCodegen``, as ``relax.ext.<name>``."""
    for backend in backends:
        if backend.codegen is not None:
            tvm.register_global_func(f"relax.ext.{backend.name}", backend.codegen, override=True)
