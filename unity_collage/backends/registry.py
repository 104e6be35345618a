"""The known backends, in order of preference, and how names become backends.

A plug-in that cannot be loaded is listed by :func:`statuses` and is not used. If two backends have one name, using
that name is an error. So is using all backends, since otherwise one of the two would be left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import tvm
from tvm.target import Target

from ..errors import CollageError, UnavailableBackend, UnknownBackend, with_names
from ..sessions import RUNTIMES
from ..target import processor_of
from . import options
from .base import Backend
from .foreign import bridge
from .plugins import ENTRY_POINT_GROUP, Plugin, described, plugins

__all__ = [
    "ENTRY_POINT_GROUP",
    "BackendStatus",
    "every",
    "excluding",
    "find",
    "get",
    "known",
    "missing",
    "register_codegens",
    "select",
    "statuses",
    "usable",
    "why_unavailable",
]

_OURS = "unity_collage"

_AVAILABLE = "available"
"""The prefix of the state of a usable backend."""


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """The status of a backend, or of a plug-in without one, for the command line."""

    name: str
    state: str
    """Its version, or why it cannot be used."""

    @property
    def is_available(self) -> bool:
        """Whether it can be used here."""
        return self.state.startswith(_AVAILABLE)


@dataclass(frozen=True, slots=True)
class _Installed:
    """The backends that are values in installed packages, ours included."""

    backends: dict[str, Backend]
    """By name; the first one if several have the name."""
    origins: dict[str, list[str]]
    """By name, the origins of all backends with that name."""
    plugins: tuple[Plugin, ...]


@cache
def known() -> dict[str, Backend]:
    """Our backends in order of preference, then those of installed packages by name; the first of each name."""
    return _installed().backends


@cache
def _installed() -> _Installed:
    from .aten.backend import TORCH
    from .cublas.backend import CUBLAS
    from .cudnn.backend import CUDNN
    from .kernels.backend import KERNELS
    from .mnn.backend import MNN
    from .onednn.backend import ONEDNN
    from .openblas.backend import OPENBLAS
    from .runtimes.backend import ONNXRUNTIME, OPENVINO
    from .tvm.backend import TVM
    from .tvm_openblas.backend import TVM_OPENBLAS

    ours = (ONEDNN, OPENBLAS, KERNELS, CUDNN, CUBLAS, TVM, TVM_OPENBLAS, OPENVINO, ONNXRUNTIME, MNN, TORCH)
    backends = {backend.name: backend for backend in ours}
    origins = {name: [_OURS] for name in backends}
    found = plugins()
    for plugin in found:
        if plugin.backend is not None:
            backends.setdefault(plugin.backend.name, plugin.backend)
            origins.setdefault(plugin.backend.name, []).append(plugin.origin)
    return _Installed(backends, origins, found)


def every() -> dict[str, Backend]:
    """The :func:`known` backends, then by name those of TVM's tables (:mod:`.bridge`), without ambiguous names."""
    return {name: found for name, found in _by_name().items() if isinstance(found, Backend)}


def _by_name() -> dict[str, Backend | str]:
    """Each backend by name; for an ambiguous name the reason of :func:`why_ambiguous`."""
    found = dict(known())
    for name in bridge.names(known()):
        backend = bridge.find(name)
        assert backend is not None
        found.setdefault(name, backend)
    return {name: why_ambiguous(name) or backend for name, backend in found.items()}


def statuses() -> list[BackendStatus]:
    """The status of each of the :func:`known` backends, and of each plug-in without a backend."""
    rows = [BackendStatus(name, _state(backend)) for name, backend in known().items()]
    return rows + [
        BackendStatus(p.name, f"broken: {p.origin}: {p.problem}")
        for p in _installed().plugins
        if p.backend is None
    ]


def _state(backend: Backend) -> str:
    reason = why_ambiguous(backend.name) or why_unavailable(backend)
    reason = reason or _why_no_version(backend)
    state = (
        f"{_AVAILABLE}{_use_of(backend.name)}: {backend.fingerprint()}"
        if reason is None
        else f"not available: {reason}"
    )
    problems = [p.problem for p in _installed().plugins if p.backend is backend and p.problem]
    return "; ".join([state, *problems])


def _use_of(name: str) -> str:
    """What an inference runtime is used for; empty for other backends."""
    if name not in RUNTIMES:
        return ""
    return (
        ", for whole models"
        if RUNTIMES[name].convert
        else ", for whole models, and for regions where it is named"
    )


def find(name: str) -> Backend | None:
    """The known backend ``name``, else that of TVM's tables, else None."""
    return known().get(name) or bridge.find(name)


def get(name: str) -> Backend:
    """The backend ``name``, without options.

    Raises UnknownBackend with the names that exist, UnavailableBackend for a broken plug-in, and CollageError for a
    name that several packages use.
    """
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
    return UnknownBackend(with_names(f"no backend named {name!r}", name, list(every())))


def usable(name: str) -> Backend:
    """The backend ``name``; raises UnknownBackend, or UnavailableBackend with its reason."""
    backend = _unambiguous(why_ambiguous(name) or get(name))
    reason = why_unavailable(backend)
    if reason is not None:
        raise UnavailableBackend(f"backend {backend.name} cannot be used here: {reason}")
    return backend


def why_unavailable(backend: Backend) -> str | None:
    """Why ``backend`` is not available, or None: the answer of its ``why_unavailable``.

    An exception, or an answer that is neither None nor a text, is a reason too. A plug-in without a version is not
    available, since its costs could not be distinguished from those of the next version.
    """
    reason = _why_it_says(backend)
    is_plugin = any(plugin.backend is backend for plugin in _installed().plugins)
    return _why_no_version(backend) if reason is None and is_plugin else reason


def _why_it_says(backend: Backend) -> str | None:
    try:
        reason = backend.why_unavailable()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code
        return f"its why_unavailable failed: {described(error)}"
    if reason is None or (isinstance(reason, str) and reason):
        return reason
    return f"its why_unavailable answers {reason!r}, neither None nor a reason"


def _why_no_version(backend: Backend) -> str | None:
    try:
        version = backend.fingerprint()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code
        return f"its fingerprint failed: {described(error)}"
    return None if isinstance(version, str) and version.strip() else f"its fingerprint is {version!r}"


def select(names: Sequence[str] | None, target: Target) -> tuple[Backend, ...]:
    """The backends to use: ``names``, else the target's ``libs``, else the default ones available for its kind.

    A name may have options behind it (:mod:`.options`). Raises CollageError if its backend takes none.
    Raises UnavailableBackend, with the reason, for a named backend that is not available, or not for this kind of
    target. Raises CollageError if two backends have one name, also if no backend was named.
    """
    asked = _asked(names, target)
    if asked is None:
        return tuple(backend for backend in _defaults(target) if why_unavailable(backend) is None)
    found = [_with_options(text, target) for text in dict.fromkeys(asked)]
    twice = [each.name for at, each in enumerate(found) if each.name in {other.name for other in found[:at]}]
    if twice:
        raise CollageError(f"backend {twice[0]} is named twice, with other options: name it once")
    return tuple(found)


def _with_options(text: str, target: Target) -> Backend:
    name, given = options.split(text)
    backend = _usable_for(name, target)
    if given and not backend.takes_options:
        able = sorted(each.name for each in every().values() if each.takes_options)
        raise CollageError(f"{text!r}: backend {name} takes no options; these do: {', '.join(able)}")
    return replace(backend, options=tuple(sorted(given.items()))) if given else backend


def missing(names: Sequence[str] | None, target: Target) -> dict[str, str]:
    """The backends that :func:`select` leaves out because they are not available, with the reason."""
    if _asked(names, target) is not None:
        return {}
    reasons = {backend.name: why_unavailable(backend) for backend in _defaults(target)}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _asked(names: Sequence[str] | None, target: Target) -> Sequence[str] | None:
    """The names of backends that a caller or the target gives, or None."""
    libs = target.attrs.get("libs")
    return names if names is not None else [str(lib) for lib in libs] if libs else None


def _defaults(target: Target) -> list[Backend]:
    """The backends that are used where none is named, if they are available."""
    every_one = [_unambiguous(found) for found in _by_name().values()]
    return [each for each in every_one if each.by_default and why_not_for(each, target) is None]


def why_not_for(backend: Backend, target: Target) -> str | None:
    """Why ``backend`` makes no kernels for targets of this kind or for their processors, or None if it does."""
    if target.kind.name not in backend.kinds:
        kinds = " and ".join(sorted(backend.kinds))
        return f"it makes kernels for {kinds}, and the target is {target.kind.name}"
    if backend.processors and (processor := processor_of(target)) not in backend.processors:
        processors = " and ".join(sorted(backend.processors))
        return f"it makes kernels for {processors}, and the target is {processor}"
    return None


def _usable_for(name: str, target: Target) -> Backend:
    backend = usable(name)
    reason = why_not_for(backend, target)
    if reason is not None:
        raise UnavailableBackend(f"backend {name} cannot be used here: {reason}")
    return backend


def excluding(names: Iterable[str]) -> tuple[str, ...]:
    """The pairs among ``names``, as ``"one|other"``, of which one backend declares that it excludes the other."""
    found = {name: backend for name in dict.fromkeys(names) if (backend := find(name)) is not None}
    pairs = {
        "|".join(sorted((name, other)))
        for name, backend in found.items()
        for other in backend.excludes
        if other in found and other != name
    }
    return tuple(sorted(pairs))


def register_codegens(backends: Iterable[Backend]) -> None:
    """Register the code generators of ``backends`` as ``relax.ext.<name>``, for TVM's ``RunCodegen``."""
    for backend in backends:
        if backend.codegen is not None:
            tvm.register_global_func(f"relax.ext.{backend.name}", backend.codegen, override=True)


def register_relax_ext() -> list[str]:
    """Register the code generators of all backends that are available here; the names of those backends.

    From then on TVM's own ``RunCodegen`` makes their kernels, as it does for ``partition_for_*`` functions of TVM.
    """
    usable_here = [found for found in known().values() if found.codegen and why_unavailable(found) is None]
    register_codegens(usable_here)
    return [found.name for found in usable_here]


def why_ambiguous(name: str) -> str | None:
    """Which two backends have the name ``name``, in packages or in TVM's tables; None if only one has it."""
    origins = _installed().origins.get(name, ["this process"] if name in known() else [])
    theirs = bridge.origin(name) if origins else None
    first, *others = [*origins, *([] if theirs is None else [theirs])] or [""]
    return f"two backends are named {name!r}: one of {first}, one of {others[0]}" if others else None


def _unambiguous(found: Backend | str) -> Backend:
    """``found`` if it is a backend; raises CollageError if it is the reason of :func:`why_ambiguous`."""
    if isinstance(found, str):
        raise CollageError(f"{found}; uninstall one of them, or name other backends")
    return found
