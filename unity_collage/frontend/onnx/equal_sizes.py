"""Sizes that have to be equal, where only the program knows whether they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvm import relax, tirx

from .node import OnnxNode
from .symbolic import are_equal
from .values import Dim


def require_shape(node: OnnxNode, what: str, shape: Sequence[Dim], wanted: Sequence[Dim]) -> None:
    """Refuses a node if ``what``, a tensor of this ``shape``, cannot have the shape ``wanted``.

    Where only the program knows, it checks.
    """
    pairs = list(zip(shape, wanted, strict=False))
    if len(shape) != len(wanted) or any(are_equal(*pair) is False for pair in pairs):
        have, want = (", ".join(map(str, sizes)) for sizes in (shape, wanted))
        node.refuse(f"{what} has the shape ({have}), and ({want}) fits")
    require_equal(node, pairs)


def require_at_most(node: OnnxNode, what: str, pairs: Iterable[tuple[Dim, Dim]]) -> None:
    """Refuses a node if the first size of a pair, which is one of ``what``, is larger than the second.

    Where only the program knows, it checks.
    """
    open_pairs = [pair for pair in pairs if are_equal(*pair) is not True]
    for size, most in open_pairs:
        if isinstance(size, int) and isinstance(most, int) and size > most:
            node.refuse(f"{what} has the size {size}, and at most {most} fits")
    require_equal(
        node,
        [
            (tirx.min(*(tirx.const(0, "int64") + each for each in (size, most))), size)
            for size, most in open_pairs
            if not (isinstance(size, int) and isinstance(most, int))
        ],
    )


def require_equal(node: OnnxNode, pairs: Iterable[tuple[Dim, Dim]]) -> None:
    """Ends the program with an error where the sizes of a pair differ; nothing for pairs that are certainly equal.

    Kernels read and write by the sizes that follow, also beyond the end of a tensor.
    """
    checks: list[relax.Expr] = []
    for pair in pairs:
        if are_equal(*pair):
            continue
        # On tensors: TVM would simplify a difference of symbolic sizes.
        have, want = (node.emit(relax.op.shape_to_tensor(relax.ShapeExpr([size]))) for size in pair)
        checks.append(node.emit(relax.op.subtract(have, want)))
    if checks:
        found = node.emit(relax.op.concat(checks, 0)) if len(checks) > 1 else checks[0]
        zeros = [tirx.const(0, "int64")] * len(checks)
        node.builder.match_cast(node.emit(relax.op.tensor_to_shape(found)), relax.ShapeType(zeros))
