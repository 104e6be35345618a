"""Which backends there are, in preference order, and how names become backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import entry_points

import tvm
from tvm.target import Target

from ..errors import CollageError, UnavailableBackend, UnknownBackend
from .base import Backend
from .foreign import bridge

ENTRY_POINT_GROUP = "unity_collage.backends"
"""Third parties name a Backend value here."""


@cache
def known() -> dict[str, Backend]:
    """Ours in preference order, then those of installed packages by name."""
    return {name: backend for name, (backend, _) in _installed().items()}


@cache
def _installed() -> dict[str, tuple[Backend, str]]:
    """The backends that are values somewhere, and where."""
    from .kernels.backend import KERNELS
    from .onednn.backend import ONEDNN
    from .openblas.backend import OPENBLAS
    from .tvm.backend import TVM

    found = {backend.name: (backend, "unity_collage") for backend in (ONEDNN, OPENBLAS, KERNELS, TVM)}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        backend = point.load()
        if backend.name in found:
            raise _conflict(backend.name, found[backend.name][1], point.value)
        found[backend.name] = (backend, point.value)
    return found


def every() -> dict[str, Backend]:
    """The :func:`known` ones, then by name those that TVM's tables make now (:mod:`.bridge`)."""
    found = dict(known())
    for name in bridge.names(found):
        _check_one_origin(name)
        backend = bridge.find(name)
        assert backend is not None
        found[name] = backend
    return found


def find(name: str) -> Backend | None:
    """The backend ``name``, if there is one: a known one, else one by TVM's tables."""
    return known().get(name) or bridge.find(name)


def get(name: str) -> Backend:
    """The backend ``name``; raises UnknownBackend with the names that exist."""
    backend = find(name)
    if backend is None:
        raise UnknownBackend(f"no backend named {name!r}; there are: {', '.join(every())}")
    return backend


def usable(name: str) -> Backend:
    """The backend ``name``; raises UnknownBackend, or UnavailableBackend with its reason."""
    backend = get(name)
    _check_one_origin(name)
    reason = backend.why_unavailable()
    if reason is not None:
        raise UnavailableBackend(f"backend {backend.name} cannot be used here: {reason}")
    return backend


def select(names: Sequence[str] | None, target: Target) -> tuple[Backend, ...]:
    """The backends to offer: ``names``, else the target's ``libs``, else all that are available.

    A backend that was named must be available: raises UnavailableBackend with its reason.
    """
    libs = target.attrs.get("libs")
    asked = names if names is not None else [str(lib) for lib in libs] if libs else None
    if asked is None:
        return tuple(backend for backend in every().values() if backend.why_unavailable() is None)
    return tuple(usable(name) for name in dict.fromkeys(asked))


def register_codegens(backends: Iterable[Backend]) -> None:
    """Make ``backends`` reachable for TVM's stock ``RunCodegen``, as ``relax.ext.<name>``."""
    for backend in backends:
        if backend.codegen is not None:
            tvm.register_global_func(f"relax.ext.{backend.name}", backend.codegen, override=True)


def _check_one_origin(name: str) -> None:
    """Raises CollageError if both a Backend value and TVM's tables say what ``name`` takes."""
    theirs = bridge.origin(name) if name in known() else None
    if theirs is not None:
        raise _conflict(name, _installed().get(name, (None, "this process"))[1], theirs)


def _conflict(name: str, first: str, second: str) -> CollageError:
    return CollageError(f"two backends are named {name!r}: one of {first}, one of {second}")
