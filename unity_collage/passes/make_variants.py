"""MakeVariants: functions for sample sizes of dimensions that ``main`` leaves open.

Reads    ``main`` and what it calls; run it first.
Writes   a private function for each combination of sizes, with ``collage.sizes``; one for all other sizes; ``main``,
         which calls one of them, with ``collage.switch``, ``collage.range`` and its ``collage.plan``.
Keeps    what ``main`` computes for every size; its result loses the sizes in its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm.ir import IRModule

from ..sizes.samples import Samples
from ..sizes.variants import varied


@tvm.transform.module_pass(opt_level=0, name="collage.MakeVariants")
@dataclass(frozen=True)
class MakeVariants:
    """Bind the symbolic sizes of ``main`` to numbers, once for each combination of ``samples``.

    ``compile`` does the same to a model, which it imports with these sizes where that is possible.
    """

    samples: Samples = field(default_factory=dict[str, "Sequence[int] | Mapping[int, float]"])
    """Sizes by the name of a dimension, a ``range``, some members of which stand for it, or a mapping from sizes to
    their weights; empty: likely sizes."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return varied(mod, self.samples)[0]
