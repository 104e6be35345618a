"""A model with a range of sizes, compiled by measured costs: its numbers, its regret, and its certificate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiled import arrays
from rich.console import Console
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.cli.check_plan import findings
from unity_collage.report import plan_summary

# On a busy machine another program than that of the search may be the fastest, and it has no range.
pytestmark = pytest.mark.alone


@I.ir_module
class Layer:
    """Both sizes are free, so that the plan for other sizes is one of kernels with free sizes."""

    @R.function
    def main(
        x: R.Tensor(("n", "m", 16), "float32"),
        w: R.Tensor((16, 24), "float32"),
        bias: R.Tensor((24,), "float32"),
    ) -> R.Tensor(("n", "m", 24), "float32"):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(R.add(a, bias))
            R.output(b)
        return b


random = np.random.default_rng(0)
WEIGHTS = random.standard_normal((16, 24), dtype=np.float32)
BIAS = random.standard_normal(24, dtype=np.float32)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> uc.Program:
    return uc.compile(
        Layer,
        shapes={"n": {1: 0.8, 16: 0.2}, "m": [8]},
        params={"w": WEIGHTS, "bias": BIAS},
        database=tmp_path_factory.mktemp("costs") / "costs.sqlite",
        backends=["onednn", "tvm"],
        budget_seconds=None,
    )


@pytest.mark.parametrize("sizes", [(1, 8), (16, 8), (1, 7), (5, 8), (40, 3), (0, 8)])
def test_numbers_at_the_samples_and_between(program: uc.Program, sizes: tuple[int, int]) -> None:
    x = random.standard_normal((*sizes, 16), dtype=np.float32)
    np.testing.assert_allclose(arrays(program(x)), np.maximum(x @ WEIGHTS + BIAS, 0), rtol=1e-4, atol=1e-5)


def test_the_greatest_regret_is_printed(program: uc.Program) -> None:
    plan = program.plan["main"]
    assert plan.range is not None, plan.remarks
    assert [each.weight for each in plan.range.sizes] == pytest.approx([0.8, 0.2])
    for each in plan.range.sizes:
        assert each.seconds > 0 and each.best_seconds > 0
        assert each.regret == pytest.approx(each.seconds - each.best_seconds)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(plan_summary("main", plan))
    assert (
        "the greatest regret is" in captured.get()
        or "no static plan that was found is cheaper" in captured.get()
    )


def test_the_first_call_with_other_sizes_is_timed(program: uc.Program) -> None:
    comparison = program.plan["main"].comparison
    assert comparison is not None and comparison.first_call is not None
    call = comparison.first_call
    assert call.sizes == {"n": 8, "m": 4} and call.seconds > 0 and call.later > 0


def test_the_saved_program_carries_the_certificate_of_its_range(program: uc.Program, tmp_path: Path) -> None:
    program.save(str(tmp_path / "layer.so"))
    found = dict(findings(str(tmp_path / "layer.so")))
    assert all(finding.holds for finding in found.values()), found
    assert found["main"].text.startswith("2 sizes, ")
    shared = {name: plan for name, plan in program.plan.items() if plan.at_samples}
    for name, plan in shared.items():
        assert f"weighed over {len(plan.at_samples)} size" in found[name].text
    # Two plans share the sizes where costs say that one for small sizes and one for large ones are better.
    weighed = {at.sizes["n"] for plan in shared.values() for at in plan.at_samples}
    assert weighed == {1, 3, 16}
