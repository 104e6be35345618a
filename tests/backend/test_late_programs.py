"""A cost that does not hold in the running program: compile finds it, and plans without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import backends_of
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.backends.onednn import lowering
from unity_collage.cost.model import Workload
from unity_collage.errors import CollageError
from unity_collage.feedback import corrections, refine
from unity_collage.measure.measured import MeasuredCost
from unity_collage.plan.costs import Cost


@dataclass(frozen=True)
class Flattering(MeasuredCost):
    """Divides the costs of kernels whose backend and label begin with ``flattered`` by ``by``."""

    flattered: str = "openblas"
    by: float = 1e3

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        wrong = {w.key for w in workloads if f"{w.backend} {w.label}".startswith(self.flattered)}
        right = super().costs(workloads)
        return {key: self._wrong(cost) if key in wrong else cost for key, cost in right.items()}

    def confirmed(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {}

    def _wrong(self, cost: Cost) -> Cost:
        if cost.seconds is None:
            return cost
        return replace(cost, seconds=cost.seconds / self.by, low=cost.low / self.by, high=cost.high / self.by)


def products() -> IRModule:
    """Two products, which take OpenBLAS several times as long as oneDNN, with :func:`slow_openblas`."""
    numbers = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((512, 512), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for columns in (512, 384):
                weights = numbers.standard_normal((512, columns), dtype=np.float32)
                value = builder.emit(R.matmul(value, relax.const(weights)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()


def compiled(database: Path, **options: Any) -> uc.Program:
    model = Flattering(uc.CostDatabase(database), **options)
    return uc.compile(products(), backends=["onednn", "openblas"], estimator=model)


@pytest.fixture(scope="module", autouse=True)
def slow_openblas() -> Iterator[None]:
    """Processes that measure run OpenBLAS without AVX: with AVX it may be as fast as oneDNN."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_CORETYPE", "Prescott")
        yield


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, uc.Program]:
    database = tmp_path_factory.mktemp("costs") / "costs.sqlite"
    return database, compiled(database)


def test_a_wrong_cost_is_found_in_the_program_and_corrected(mended: tuple[Path, uc.Program]) -> None:
    plan = mended[1].plan["main"]
    assert backends_of(mended[1]) == {"onednn"}
    assert any("in the running program: openblas matmul" in remark for remark in plan.remarks)
    assert plan.measured_seconds < 3 * plan.seconds


def test_what_was_found_is_known_the_next_time(
    mended: tuple[Path, uc.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("there was no need to measure")

    monkeypatch.setattr(refine, "ProgramWorker", never)
    monkeypatch.setattr(corrections, "ProgramWorker", never)
    again = compiled(mended[0], locked=True)
    assert replace(again.plan["main"], comparison=None) == replace(mended[1].plan["main"], comparison=None)


def test_a_program_that_cannot_be_timed_is_what_the_costs_say(
    mended: tuple[Path, uc.Program], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise CollageError("the process crashed: SIGSEGV")

    monkeypatch.setattr(corrections, "ProgramWorker", failing)
    with pytest.warns(
        UserWarning, match="not compared with the running program: the process crashed: SIGSEGV"
    ):
        program = compiled(tmp_path / "costs.sqlite")
    assert backends_of(program) == {"openblas"}
    assert program.plan["main"].measured_seconds is not None


def test_an_honest_cost_builds_no_other_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrections, "ProgramWorker", None)
    program = uc.compile(products(), backends=["onednn"], database=tmp_path / "costs.sqlite")
    assert program.plan["main"].measured_seconds > 0.0


def test_a_kernel_that_is_another_one_in_the_program_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that this is for: oneDNN makes a reference kernel for an image whose batch has an odd stride, unless
    its cache already has one for a dense image of the same shape, as in the process that measures. Here we make the
    program without the mend of those strides, and of the one kernel that makes and reads such an image."""
    monkeypatch.setattr(lowering, "with_nested_strides", lambda step: step)
    numbers = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 196, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = builder.emit(R.permute_dims(x, (0, 2, 1)))
            value = builder.emit(R.reshape(value, (1, 64, 14, 14)))
            value = builder.emit(R.permute_dims(value, (0, 2, 3, 1)))
            weights = relax.const(numbers.standard_normal((64, 3, 3, 64), dtype=np.float32))
            options = {"padding": (1, 1), "data_layout": "NHWC", "kernel_layout": "OHWI"}
            result = builder.emit_output(R.nn.conv2d(value, weights, **options))
        builder.emit_func_output(result)

    fused = "onednn permute_dims+reshape+permute_dims+conv2d"
    model = Flattering(uc.CostDatabase(tmp_path / "costs.sqlite"), flattered=fused, by=4.0)
    program = uc.compile(builder.get(), backends=["onednn", "tvm"], estimator=model)

    plan = program.plan["main"]
    assert plan.measured_seconds < 1e-3
    assert any("in the running program: onednn" in remark for remark in plan.remarks)
