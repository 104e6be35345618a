"""ChooseByRule: the preferred backend takes all it can, and TVM gets and groups the rest."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, PLAN
from unity_collage.errors import CollageError
from unity_collage.passes import AnnotateCandidates, ChooseByRule
from unity_collage.pipeline import Pipeline
from unity_collage.plan.plan import Plan
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends

ONE = fake_backend("one", "relax.nn.relu")
TWO = fake_backend("two", "relax.nn.relu", "relax.exp")


def chosen(func: relax.Function, *priority: str) -> tuple[IRModule, Plan]:
    with only_backends(ONE, TWO), Target("llvm"):
        mod = AnnotateCandidates(priority or None)(IRModule({"main": func}))
        found = ChooseByRule(priority or None)(mod)
    return found, PLAN.read(found["main"])


@pytest.mark.parametrize(
    ("priority", "backends"),
    [
        (("one", "two"), ["one", "two"]),
        (("two", "one"), ["two", "two"]),
        (("one", "tvm", "two"), ["one"]),
        (("tvm", "one"), []),
        (("tvm",), []),
        ((), ["one", "two"]),
    ],
)
def test_backends_take_what_they_can_in_their_order(priority: tuple[str, ...], backends: list[str]) -> None:
    _, plan = chosen(graphs.chain(), *priority)
    assert [kernel.backend for kernel in plan.kernels] == backends
    assert len(plan.left_behind) == 3 - len(backends)


def test_the_plan_has_no_costs_and_says_so() -> None:
    mod, plan = chosen(graphs.chain(), "one")
    assert (plan.algorithm, plan.seconds, plan.has_costs, plan.proved) == ("rule", 0.0, False, False)
    assert plan.remarks == (
        "chosen by rule: nothing was measured, so it is not known which kernels are fast",
    )
    assert plan.kernels[0].interval is None and plan.without_cost == ()
    assert not CANDIDATES.on(mod["main"])


def test_the_pipeline_without_measuring_asks_no_model() -> None:
    class Silent:
        """Fails whatever it is asked."""

        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    with only_backends(ONE, TWO), Target("llvm"):
        passes = Pipeline(backends=("tvm",), model=Silent(), measure=False).passes()  # type: ignore[arg-type]
        final = tvm.transform.Sequential(passes)(IRModule({"main": graphs.diamond()}))
    kernels = [func for func in final.functions.values() if isinstance(func, tvm.tirx.PrimFunc)]
    assert len(kernels) == 1, "TVM groups the diamond into one kernel"


@pytest.mark.parametrize("option", ["explain", "search_layouts", "tune_trials", "percentile"])
def test_what_needs_costs_is_refused(option: str) -> None:
    import unity_collage as uc

    value = {"tune_trials": 2, "percentile": 90.0}.get(option, True)
    with pytest.raises(CollageError, match=f"{option} needs costs, and nothing is measured"):
        uc.compile(IRModule({"main": graphs.chain()}), measure=False, **{option: value})
