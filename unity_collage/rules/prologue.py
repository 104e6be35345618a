"""The prologue of a kernel: operators that a product or a convolution of TVM may compute while it reads its operand."""

from __future__ import annotations

from tvm import relax

from ..graph import DataflowGraph, IndexSet, Node, OpKind
from ..graph.shapes import shape_of
from ..index_set import EMPTY
from .cancelling import PERMUTATION

_FACTOR = "relax.multiply"
_PRODUCT = "relax.matmul"
_CONVOLUTION = "relax.nn.conv2d"
_CONCAT = "relax.concat"


def reads_through(anchor: Node, source: Node) -> bool:
    """Whether ``anchor`` may compute ``source`` while reading: a transpose, or a factor for each channel.

    A channel factor moves to the weights, ``sum((x[i, c] * s[c]) * w[c, j]) = sum(x[i, c] * (w[c, j] * s[c]))``, and is
    multiplied once for all rows of a tile. The gates of squeeze-and-excitation blocks are such factors. Shapes must be
    static.
    """
    return source.op == PERMUTATION or (
        _sums_channels_of(anchor, source) and _has_factors_of_channels(source)
    )


def prologue_of(graph: DataflowGraph, anchor: Node, source: Node) -> IndexSet:
    """The nodes, ``source`` last, that ``anchor`` may compute before itself by bands of rows.

    ``anchor`` is a product or a pointwise convolution; the nodes are element-wise operators and concatenations that
    nothing else reads. Empty if they begin behind another anchor, which could take them as its epilogue.
    """
    if (
        not _sums_channels_of(anchor, source)
        or not _is_local(graph, source)
        or not _keeps_rows(anchor, source)
    ):
        return EMPTY
    inside = 1 << source.index
    pending = [source]
    while pending:
        for index in pending.pop().inputs:
            node = graph.nodes[index]
            alone = not graph.consumers[index] & ~inside and not graph.results >> index & 1
            if alone and graph.kinds[index] in (OpKind.REDUCTION, OpKind.OUT_EWISE_FUSABLE):
                return EMPTY
            if alone and _is_local(graph, node) and node.block == source.block:
                inside |= 1 << index
                pending.append(node)
    return inside


def _keeps_rows(anchor: Node, source: Node) -> bool:
    """Whether each row of the result comes from the same row of ``source``, in numbers that are known: no stride skips
    a row."""
    rows, wanted = (None if node.call is None else shape_of(node.call) for node in (source, anchor))
    return rows is not None and wanted is not None and rows[:-1] == wanted[:-1]


def _is_local(graph: DataflowGraph, node: Node) -> bool:
    """Whether a node is cheap and computes each row of float32 values from the same row of its operands."""
    if node.call is None or node.is_host or not _is_float32(node.call):
        return False
    return graph.kinds[node.index] <= OpKind.BROADCAST or node.op == _CONCAT


def _sums_channels_of(anchor: Node, source: Node) -> bool:
    """Whether ``anchor`` reduces the last axis of ``source`` and no other, as a matrix product does."""
    if anchor.call is None or not anchor.call.args[0].same_as(source.var):
        return False
    if anchor.op == _PRODUCT:
        return True
    if anchor.op != _CONVOLUTION:
        return False
    attrs, weights = anchor.call.attrs, shape_of(anchor.call.args[1])
    if weights is None:
        return False
    window = [weights[str(attrs.kernel_layout).index(axis)] for axis in "HW"]
    plain = int(attrs.groups) == 1 and not any(int(pad) for pad in attrs.padding)
    return plain and window == [1, 1] and str(attrs.data_layout) == "NHWC"


def _has_factors_of_channels(node: Node) -> bool:
    """Whether a node multiplies float32 values by factors that depend on the last axis alone."""
    if node.call is None or node.op != _FACTOR or not _is_float32(node.call):
        return False
    whole = shape_of(node.call)
    factors = [shape for shape in map(shape_of, node.call.args) if shape != whole]
    if whole is None or len(factors) != 1 or factors[0] is None:
        return False
    return all(extent == 1 for extent in factors[0][:-1]) and factors[0][-1:] == whole[-1:]


def _is_float32(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == "float32"
