"""fake_backend: a backend without a library, for tests of what comes before the kernels run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tvm import relax
from tvm.target import Target

from ..backends import registry
from ..backends.base import Backend, Codegen
from ..rules import OpPredicate


def fake_backend(
    name: str, *ops: str, why_not: Mapping[str, str] | None = None, codegen: Codegen | None = None
) -> Backend:
    """A backend that takes single calls of ``ops``, declines those in ``why_not`` for the reasons there,
    and makes kernels with ``codegen`` (default: none at all).
    """
    reasons = dict(why_not or {})

    def rule(_target: Target) -> OpPredicate:
        every_op = frozenset(ops) | frozenset(reasons)
        return OpPredicate("fake", every_op, lambda call: reasons.get(_op_name(call)))

    return Backend(
        name=name,
        rule=rule,
        why_unavailable=lambda: None,
        fingerprint=lambda: f"{name} 1.0",
        codegen=codegen or (lambda functions, options, constants: []),
    )


@contextmanager
def only_backends(*backends: Backend) -> Iterator[None]:
    """Inside, these are all the backends there are, besides TVM."""
    from ..backends.tvm_kernels import TVM

    original = registry.known
    registry.known = lambda: {backend.name: backend for backend in (*backends, TVM)}
    try:
        yield
    finally:
        registry.known = original


def _op_name(call: relax.Call) -> str:
    return str(call.op.name)
