"""ChooseByRule: give each library what it takes, in order of preference, and TVM the rest; no costs are needed.

Reads    ``collage.candidates``, from AnnotateCandidates.
Writes   the chosen kernels, outlined as by :mod:`.apply_plan`; ``collage.plan`` without costs. Removes the attributes
         that it read.
Keeps    what the program computes; bindings that are in no chosen kernel, which FuseRemaining groups as TVM does.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES
from ..graph import DataflowGraph
from ..lowering.by_rule import applied_by_rule
from ..lowering.outline import NameSupply

_REMARK = "chosen by rule: nothing was measured, so it is not known which kernels are fast"


@tvm.transform.module_pass(opt_level=0, name="collage.ChooseByRule")
@dataclass(frozen=True)
class ChooseByRule:
    """The backend that comes first takes all it can, its largest candidates first; then the next one.

    The partitioners of libraries work like this. TVM makes and groups what is left. Backends behind TVM in the order
    get only bindings that TVM cannot compile.
    """

    priority: tuple[str, ...] | None = None
    """Backends in preference order; None: the order of ``unity-collage backends``, TVM last."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions: dict[relax.GlobalVar, tvm.ir.BaseFunc] = {}
        names = NameSupply(mod)
        for gvar, func in mod.functions_items():
            if isinstance(func, relax.Function) and CANDIDATES.on(func):
                graph, candidates = DataflowGraph(func, mod), CANDIDATES.read(func)
                chosen, outlined = applied_by_rule(graph, candidates, names, self.priority, _REMARK)
                functions.update({gvar: chosen, **outlined})
            else:
                functions[gvar] = func
        result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.Normalize()(result)
