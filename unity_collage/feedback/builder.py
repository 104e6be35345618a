"""Builds programs of chosen candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from ..lowering.apply import applied_module
from ..lowering.build import build
from ..lowering.by_rule import is_unmeasured, with_unmeasured_by_rule
from ..lowering.fuse import fused
from ..lowering.offload import offloaded_module
from .candidates import Choice
from .whole_models import Entrant, WholeModels

Built = tuple[IRModule, relax.VMExecutable]
"""A final module and its program."""


@dataclass(frozen=True, slots=True)
class ProgramBuilder:
    """Builds candidate programs of one model."""

    costed: IRModule
    """The module after the passes that give costs to its candidates."""
    imported: IRModule
    """The module before all passes."""
    target: Target
    search: Callable[[IRModule], IRModule]
    """Turns a module with costs into the final module of its cheapest plan."""
    correct: Callable[[IRModule], IRModule]
    """Replaces the costs that do not hold in the running program."""
    whole_models: WholeModels = field(default_factory=dict[str, Entrant])
    """Whole-model programs that are also compared."""
    _ours: list[IRModule] = field(default_factory=list[IRModule], init=False, repr=False, compare=False)
    """The final module of the cheapest plan of ``costed``, once it was searched."""

    def searched(self, costed: IRModule) -> Built:
        """The final module of the cheapest plan for the costs of ``costed``, and its program."""
        mod = self.ours() if costed.same_as(self.costed) else self._searched(costed)
        return mod, build(mod, self.target)

    def ours(self) -> IRModule:
        """The final module of the cheapest plan of ``costed``, which is searched once."""
        if not self._ours:
            self._ours.append(self._searched(self.costed))
        return self._ours[0]

    def _searched(self, costed: IRModule) -> IRModule:
        with self.target:
            return self.search(costed)

    def chosen(self, choice: Choice, origin: str) -> Built:
        """The final module of a choice, and its program; ``origin`` is the ``algorithm`` of its plan."""
        mod = finished(self.costed, choice, self.target, origin)
        return mod, build(mod, self.target)

    def whole(self, name: str) -> Built:
        """The module of the whole model ``name``, and its program."""
        mod = self.whole_models[name].make()
        return mod, build(mod, self.target)

    def stock(self) -> Built:
        """The imported module, and the program that TVM alone makes of it."""
        return self.imported, built_by_tvm(self.imported, self.target)


def built_by_tvm(imported: IRModule, target: Target) -> relax.VMExecutable:
    """The program that TVM alone makes of an imported module."""
    return relax.build(imported, target)


def finished(costed: IRModule, choice: Choice, target: Target, origin: str = "given") -> IRModule:
    """The final module of a choice, ready to be built."""
    measured = {
        name: ids for name, ids in choice.items() if not is_unmeasured(cast(relax.Function, costed[name]))
    }
    with target:
        mod = with_unmeasured_by_rule(applied_module(costed, measured, origin))
        return fused(offloaded_module(mod), target)
