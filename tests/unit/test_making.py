"""How a program is built again, which :meth:`Program.save` needs after a run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tvm.ir import IRModule

from unity_collage import making
from unity_collage.feedback.builder import built_by_tvm
from unity_collage.feedback.comparison import STOCK
from unity_collage.feedback.settings import Refined
from unity_collage.lowering.build import build
from unity_collage.plan.comparison import ProgramComparison
from unity_collage.testing import graphs


@pytest.mark.parametrize(("winner", "how"), [(STOCK, built_by_tvm), ("greedy", build)])
def test_a_program_is_built_again_as_it_was_built(
    monkeypatch: pytest.MonkeyPatch, winner: str, how: Callable[..., Any]
) -> None:
    """With free sizes the module of stock TVM has variants, so it is not the module that was imported."""
    again: list[Any] = []

    def made(*arguments: Any) -> Any:
        again.append(arguments[-1])
        return SimpleNamespace(plan=None, add_to_plan=lambda *_, **__: None)

    monkeypatch.setattr(making, "program_of", made)
    monkeypatch.setattr(making, "held_by", lambda _: {})
    source: Any = SimpleNamespace(mod=IRModule({"main": graphs.chain()}))
    executable: Any = "executable"
    best = Refined(IRModule({"main": graphs.chain()}), executable, ProgramComparison(winner, ()))
    target: Any = None
    making._finished(source, target, best)
    assert how in again[0].args
