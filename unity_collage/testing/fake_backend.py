"""fake_backend: a backend without a library, whose kernels misbehave on demand."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from tvm.target import Target

from ..backends import registry
from ..backends.base import Backend, Codegen
from ..graph.calls import op_name
from ..rules import OpPredicate
from .fake_kernels import CANNOT_COMPILE, MISBEHAVIOURS
from .fake_kernels import codegen as misbehaving_codegen


def fake_backend(
    name: str, *ops: str, why_not: Mapping[str, str] | None = None, codegen: Codegen | None = None
) -> Backend:
    """A backend that takes single calls of ``ops``, and declines those in ``why_not`` with the given reasons.

    ``codegen`` makes its kernels; by default it makes none.
    """
    reasons = dict(why_not or {})

    def rule(_target: Target) -> OpPredicate:
        every_op = frozenset(ops) | frozenset(reasons)
        return OpPredicate("fake", every_op, lambda call: reasons.get(op_name(call)))

    return Backend(
        name=name,
        rule=rule,
        why_unavailable=lambda: None,
        fingerprint=lambda: f"{name} 1.0",
        codegen=codegen or (lambda functions, options, constants: []),
    )


def misbehaving_backend(misbehaviour: str, *ops: str) -> Backend:
    """``fake_<misbehaviour>``, a backend for single calls of ``ops``.

    Its kernels compute the right numbers and then misbehave, as in :mod:`unity_collage.testing.fake_kernels`.
    """
    return fake_backend(f"fake_{misbehaviour}", *ops, codegen=misbehaving_codegen(misbehaviour))


FAKES = SimpleNamespace(
    **{name: misbehaving_backend(name, "relax.nn.relu") for name in (*MISBEHAVIOURS, CANNOT_COMPILE)}
)
"""One backend for each misbehaviour, as values that entry points can name."""


@contextmanager
def installed(folder: Path, *misbehaviours: str, values: str = f"{__name__}:FAKES") -> Iterator[None]:
    """Inside the ``with`` block, a package with the entry points ``values`` is installed in the empty ``folder``.

    They are backends of this process and of the workers that it starts, like those of a third party.
    """
    info = folder / "fake_backends-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake_backends\nVersion: 1.0\n")
    lines = [f"fake_{name} = {values}.{name}\n" for name in misbehaviours]
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n{''.join(lines)}")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), before)))
    sys.path.insert(0, str(folder))
    _clear_registry()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
        _clear_registry()


def _clear_registry() -> None:
    """Clear the caches of the registry, so that entry points are read again."""
    importlib.invalidate_caches()
    for cached in (registry.known, registry._installed):  # pyright: ignore[reportPrivateUsage]
        cached.cache_clear()


@contextmanager
def only_backends(*backends: Backend) -> Iterator[None]:
    """Inside the ``with`` block, these and TVM are the only backends."""
    from ..backends.tvm.backend import TVM

    original = registry.known
    registry.known = lambda: {backend.name: backend for backend in (*backends, TVM)}
    try:
        yield
    finally:
        registry.known = original
