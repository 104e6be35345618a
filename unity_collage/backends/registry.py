"""Which backends there are, in preference order, and how names become backends.

A plug-in that cannot be loaded is a row of :func:`statuses` and takes part in nothing. A name that two backends have is
an error where it is used: where it is asked for, and where all backends are, since leaving one out would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import tvm
from tvm.target import Target

from ..errors import CollageError, UnavailableBackend, UnknownBackend
from .base import Backend
from .foreign import bridge
from .plugins import ENTRY_POINT_GROUP, Plugin, described, plugins

__all__ = [
    "ENTRY_POINT_GROUP",
    "BackendStatus",
    "every",
    "find",
    "get",
    "known",
    "statuses",
    "register_codegens",
    "select",
    "usable",
    "why_unavailable",
]

_OURS = "unity_collage"


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """A backend, or a plug-in that gives none, as a person is shown it."""

    name: str
    state: str
    """Its version, or why it cannot be used."""


@dataclass(frozen=True, slots=True)
class _Installed:
    """The backends that are values somewhere."""

    backends: dict[str, Backend]
    """By name, the first where there are several."""
    origins: dict[str, list[str]]
    """By name, where each of that name is from."""
    plugins: tuple[Plugin, ...]


@cache
def known() -> dict[str, Backend]:
    """Ours in preference order, then those of installed packages by name; the first of each name."""
    return _installed().backends


@cache
def _installed() -> _Installed:
    from .kernels.backend import KERNELS
    from .onednn.backend import ONEDNN
    from .openblas.backend import OPENBLAS
    from .tvm.backend import TVM

    backends = {backend.name: backend for backend in (ONEDNN, OPENBLAS, KERNELS, TVM)}
    origins = {name: [_OURS] for name in backends}
    found = plugins()
    for plugin in found:
        if plugin.backend is not None:
            backends.setdefault(plugin.backend.name, plugin.backend)
            origins.setdefault(plugin.backend.name, []).append(plugin.origin)
    return _Installed(backends, origins, found)


def every() -> dict[str, Backend]:
    """The :func:`known` ones, then by name those that TVM's tables make now (:mod:`.bridge`); no ambiguous names."""
    return {name: found for name, found in _by_name().items() if isinstance(found, Backend)}


def _by_name() -> dict[str, Backend | str]:
    """Each backend, or :func:`why_ambiguous` for a name that several have."""
    found = dict(known())
    for name in bridge.names(known()):
        backend = bridge.find(name)
        assert backend is not None
        found.setdefault(name, backend)
    return {name: why_ambiguous(name) or backend for name, backend in found.items()}


def statuses() -> list[BackendStatus]:
    """One for each of the :func:`known` backends, and one for each plug-in that gives no other."""
    rows = [BackendStatus(name, _state(backend)) for name, backend in known().items()]
    return rows + [
        BackendStatus(p.name, f"broken: {p.origin}: {p.problem}") for p in _installed().plugins if p.backend is None
    ]


def _state(backend: Backend) -> str:
    reason = why_ambiguous(backend.name) or why_unavailable(backend)
    reason = reason or _why_no_version(backend)
    state = f"available: {backend.fingerprint()}" if reason is None else f"not available: {reason}"
    problems = [p.problem for p in _installed().plugins if p.backend is backend and p.problem]
    return "; ".join([state, *problems])


def find(name: str) -> Backend | None:
    """The backend ``name``, if there is one: a known one, else one by TVM's tables."""
    return known().get(name) or bridge.find(name)


def get(name: str) -> Backend:
    """The backend ``name``; raises UnknownBackend with the names that exist, UnavailableBackend for a broken plug-in,
    and CollageError for a name that several packages use."""
    backend = find(name)
    if backend is None:
        raise _missing(name)
    if len(_installed().origins.get(name, ())) > 1:
        return _unambiguous(why_ambiguous(name) or backend)
    return backend


def _missing(name: str) -> CollageError:
    for plugin in _installed().plugins:
        if plugin.name == name and plugin.backend is None:
            return UnavailableBackend(
                f"backend {name} cannot be used here: {plugin.origin} is broken: {plugin.problem}"
            )
    return UnknownBackend(f"no backend named {name!r}; there are: {', '.join(every())}")


def usable(name: str) -> Backend:
    """The backend ``name``; raises UnknownBackend, or UnavailableBackend with its reason."""
    backend = _unambiguous(why_ambiguous(name) or get(name))
    reason = why_unavailable(backend)
    if reason is not None:
        raise UnavailableBackend(f"backend {backend.name} cannot be used here: {reason}")
    return backend


def why_unavailable(backend: Backend) -> str | None:
    """What ``backend`` says of itself. An exception, or an answer that is neither None nor a text, is a reason too.

    A plug-in without a version is not available: its costs could not be told from those of the next version.
    """
    reason = _why_it_says(backend)
    is_plugin = any(plugin.backend is backend for plugin in _installed().plugins)
    return _why_no_version(backend) if reason is None and is_plugin else reason


def _why_it_says(backend: Backend) -> str | None:
    try:
        reason = backend.why_unavailable()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # somebody else's code
        return f"its why_unavailable failed: {described(error)}"
    if reason is None or (isinstance(reason, str) and reason):
        return reason
    return f"its why_unavailable answers {reason!r}, neither None nor a reason"


def _why_no_version(backend: Backend) -> str | None:
    try:
        version = backend.fingerprint()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # somebody else's code
        return f"its fingerprint failed: {described(error)}"
    return None if isinstance(version, str) and version.strip() else f"its fingerprint is {version!r}"


def select(names: Sequence[str] | None, target: Target) -> tuple[Backend, ...]:
    """The backends to offer: ``names``, else the target's ``libs``, else all that are available.

    A backend that was named must be available: raises UnavailableBackend with its reason. Raises CollageError for a
    name of two backends, also where none was named.
    """
    libs = target.attrs.get("libs")
    asked = names if names is not None else [str(lib) for lib in libs] if libs else None
    if asked is None:
        every_one = [_unambiguous(found) for found in _by_name().values()]
        return tuple(backend for backend in every_one if why_unavailable(backend) is None)
    return tuple(usable(name) for name in dict.fromkeys(asked))


def register_codegens(backends: Iterable[Backend]) -> None:
    """Make ``backends`` reachable for TVM's stock ``RunCodegen``, as ``relax.ext.<name>``."""
    for backend in backends:
        if backend.codegen is not None:
            tvm.register_global_func(f"relax.ext.{backend.name}", backend.codegen, override=True)


def why_ambiguous(name: str) -> str | None:
    """Which two backends have the name: values of packages, or what TVM's tables make; None where only one has."""
    origins = _installed().origins.get(name, ["this process"] if name in known() else [])
    theirs = bridge.origin(name) if origins else None
    first, *others = [*origins, *([] if theirs is None else [theirs])] or [""]
    return f"two backends are named {name!r}: one of {first}, one of {others[0]}" if others else None


def _unambiguous(found: Backend | str) -> Backend:
    """Raises CollageError with what :func:`why_ambiguous` says."""
    if isinstance(found, str):
        raise CollageError(f"{found}; uninstall one of them, or name other backends")
    return found
