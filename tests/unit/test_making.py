"""How a program is built again, which :meth:`Program.save` needs after a run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tvm import relax, tirx
from tvm.ir import IRModule

from unity_collage import making
from unity_collage.feedback.builder import built_by_tvm
from unity_collage.feedback.comparison import STOCK
from unity_collage.feedback.settings import Refined
from unity_collage.frontend.models import Imported
from unity_collage.frontend.opaque import with_remarks
from unity_collage.graph.variants import range_of
from unity_collage.lowering.build import build
from unity_collage.plan.comparison import ProgramComparison
from unity_collage.target import host_target
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


def test_samples_of_a_model_with_opaque_calls_are_where_its_plan_is_weighed() -> None:
    source = Imported(
        with_remarks(of_rows(), ["Unknown is an opaque call"]), ("x",), samples={"n": {3: 1.0, 5: 3.0}}
    )
    mod, remarks = making.with_sizes(source, host_target())
    assert range_of(mod["main"]) == [({"n": 3}, 0.25), ({"n": 5}, 0.75)]
    assert remarks[-1] == "one plan for all sizes, measured at n 3; n 5: it has opaque calls"


def of_rows() -> IRModule:
    """A model with a free number of rows."""
    x = relax.Var("x", relax.TensorType([tirx.Var("n", "int64"), 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    return builder.get()
