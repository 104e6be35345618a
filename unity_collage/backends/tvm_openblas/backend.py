"""OpenBLAS inside of TVM's kernels: a product by the library, with TVM's loops before and behind it, as one kernel.

Takes     the groups that TVM fuses around a product of float32 with a matrix on its right.
Declines  products of other types, with a batch of right operands, and with free sizes.
Needs     ``scipy-openblas32``. It is used only if it is named: what it saves over OpenBLAS and TVM side by side is one
          call or two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.target import Target

from ... import runtime
from ...graph import DataflowGraph, Nested, members
from ...graph.calls import op_name
from ...graph.shapes import dtype_of, shape_of
from ...rules import Declined, Found, Rule
from ...rules.tree import Printed
from ..base import Backend
from ..library_calls import LibraryCall, register_library_call
from ..tvm.backend import TVM

LABEL = "openblas.matmul"

register_library_call(
    LibraryCall(
        LABEL,
        lambda operands, results, _workspace: tirx.call_packed(
            "collage.openblas.matmul", *operands, *results
        ),
    )
)


def why_not_product(call: relax.Call) -> str | None:
    """Why the library does not compute a product inside a kernel, or None."""
    left, right = (shape_of(operand) for operand in call.args[:2])
    if left is None or right is None:
        return "a size is known only when the program runs"
    if 0 in (*left, *right):
        return "an operand has no elements"
    if len(left) < 2 or len(right) != 2:
        return "the right operand is not one matrix"
    types = {dtype_of(each) for each in (*call.args[:2], call)}
    return None if types == {"float32"} else f"it is a product of {', '.join(sorted(types))}, not of float32"


@dataclass(frozen=True, slots=True)
class AroundProduct(Printed):
    """The proposals of ``rule`` with one product and more besides, in which the product is a part named ``label``."""

    rule: Rule
    label: str = LABEL

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        reasons = {
            node.index: why_not_product(node.call)
            for node in graph.nodes
            if node.call is not None and op_name(node.call) == "relax.matmul"
        }
        for index, reason in reasons.items():
            if reason is not None:
                yield Declined(index, self.label, reason)
        for proposal in self.rule.apply(graph):
            if isinstance(proposal, Found):
                products = [index for index in members(proposal.inside) if index in reasons]
                is_alone = proposal.inside.bit_count() == 1 or bool(proposal.hidden)
                if len(products) == 1 and reasons[products[0]] is None and not is_alone:
                    part = Nested(1 << products[0], self.label)
                    yield Found(proposal.inside, f"around_{self.label}", proposal.label, nested=(part,))


def _rule(target: Target) -> Rule:
    return AroundProduct(TVM.rule(target))


TVM_OPENBLAS = Backend(
    name="tvm_openblas",
    rule=_rule,
    why_unavailable=lambda: runtime.why_unavailable("openblas"),
    fingerprint=lambda: f"tvm {tvm.__version__}, {runtime.describe('openblas')}",
    multiplies_as_written=True,
    libraries=frozenset({"openblas"}),
    by_default=False,
    version=1,
)
