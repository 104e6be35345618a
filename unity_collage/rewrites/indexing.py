"""indexing: reads that cannot leave their table."""

from __future__ import annotations

from .rewrite import Rewrite
from .scope import Call, Expr, Scope, op


def _bounded(call: Call, scope: Scope) -> Expr | None:
    """take(x, i, mode="fast") -> take(x, i, mode="clip").

    Equal for every index within bounds; beyond them "fast" reads whatever memory is there, and TVM warns of it
    at every lowering.
    """
    if str(call.attrs.mode) != "fast":
        return None
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return op.take(call.args[0], call.args[1], axis, "clip")


BOUNDED_TAKE = Rewrite("bounded_take", ("relax.take",), _bounded)
