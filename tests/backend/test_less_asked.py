"""``compile`` with less: without measuring, with nothing to choose, and with weights that are bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import LIBRARIES_FIRST, arrays, random
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.errors import CollageError
from unity_collage.processes.child import Child
from unity_collage.testing import graphs

WEIGHTS, BIAS = random(16, 8, seed=1), random(8, seed=2)


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(Child, "__init__", fail)


def layer(rows: int = 4, constant: bool = False) -> IRModule:
    """relu(x @ w + b), with weights as parameters or as constants."""
    x = relax.Var("x", relax.TensorType((rows, 16), "float32"))
    w, b = (relax.Var(n, relax.TensorType(a.shape, "float32")) for n, a in (("w", WEIGHTS), ("b", BIAS)))
    params = [x] if constant else [x, w, b]
    weights = (relax.const(WEIGHTS), relax.const(BIAS)) if constant else (w, b)
    builder = relax.BlockBuilder()
    with builder.function("main", params, attrs={"num_input": 1}):
        with builder.dataflow():
            product = builder.emit(R.matmul(x, weights[0]))
            y = builder.emit_output(R.nn.relu(builder.emit(R.add(product, weights[1]))))
        builder.emit_func_output(y)
    return builder.get()


def right(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHTS + BIAS, 0)


@pytest.mark.parametrize("backends", [None, ["tvm"], ["onednn"], ["openblas", "tvm"]])
def test_programs_by_rule_compute_the_same(no_process: None, backends: list[str] | None) -> None:
    program = uc.compile(layer(constant=True), backends=backends, measure=False)
    x = random(4, 16)
    np.testing.assert_allclose(arrays(program(x)), right(x), rtol=1e-4, atol=1e-5)
    assert program.plan is not None and not program.plan["main"].has_costs


@pytest.mark.parametrize(("backends", "makers"), [(["onednn", "tvm"], ["onednn"]), (["tvm", "onednn"], [])])
def test_without_time_to_measure_anything_kernels_are_chosen_by_rule(
    tmp_path: Path, backends: list[str], makers: list[str]
) -> None:
    database = tmp_path / "costs.sqlite"
    program = uc.compile(layer(constant=True), backends=backends, database=database, budget_seconds=0.0)
    plan = (program.plan or {})["main"]
    assert plan.algorithm == "rule" and [kernel.backend for kernel in plan.kernels] == makers
    assert "chosen by rule: there was no time to measure any of its kernels" in plan.remarks
    x = random(4, 16)
    np.testing.assert_allclose(arrays(program(x)), right(x), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    "name", ["chain", "diamond", "double_residual", "two_branches_joining", "tuple_result"]
)
def test_odd_graphs_by_rule(name: str) -> None:
    func = getattr(graphs, name)()
    inputs = graphs.inputs(func)
    found = arrays(uc.compile(IRModule({"main": func}), measure=False)(*inputs))
    expected = arrays(uc.compile(IRModule({"main": func}), backends=["tvm"], measure=False)(*inputs))
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=1e-6)


def test_nothing_is_measured_where_one_plan_is_possible(no_process: None, tmp_path: Path) -> None:
    x = relax.Var("x", relax.TensorType((1024, 1024), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.matmul(x, relax.const(np.eye(1024, dtype="float32"))))
        builder.emit_func_output(y)
    with tvm.transform.PassContext():  # without the contract instrument: it prints all weights
        program = uc.compile(builder.get(), backends=["tvm"], database=tmp_path / "costs.sqlite")
    value = random(1024, 1024)
    np.testing.assert_allclose(arrays(program(value)), value, rtol=1e-5)
    assert program.plan is not None
    assert "nothing was measured: only one plan is possible" in program.plan["main"].remarks


@pytest.mark.parametrize("params", [{"w": WEIGHTS, "b": BIAS}, [WEIGHTS, BIAS]])
def test_bound_weights_are_as_good_as_constants(params: Any) -> None:
    bound = uc.compile(layer(), params=params, estimator=LIBRARIES_FIRST)
    constant = uc.compile(layer(constant=True), estimator=LIBRARIES_FIRST)
    x = random(4, 16)
    np.testing.assert_allclose(arrays(bound(x)), right(x), rtol=1e-4, atol=1e-5)
    assert bound.input_names == ("x",) and str(bound.signature) == str(constant.signature)
    assert bound.plan is not None and constant.plan is not None
    assert [k.label for k in bound.plan["main"].kernels] == [k.label for k in constant.plan["main"].kernels]


def test_a_program_can_be_bound_later(tmp_path: Path) -> None:
    program = uc.compile(layer(), backends=["tvm"], measure=False)
    x = random(4, 16)
    np.testing.assert_allclose(arrays(program(x, WEIGHTS, BIAS)), right(x), rtol=1e-4, atol=1e-5)
    bound = program.bind({"w": WEIGHTS})
    assert (program.input_names, bound.input_names) == (("x", "w", "b"), ("x", "b"))
    assert bound.plan is not None and bound.plan["main"].algorithm == "rule", (
        "the options are those of before"
    )
    twice = bound.bind([BIAS])
    np.testing.assert_allclose(arrays(twice(x)), right(x), rtol=1e-4, atol=1e-5)
    for done in (twice, uc.compile(layer(constant=True), measure=False)):
        with pytest.raises(CollageError, match="its model has no weights behind num_input"):
            done.bind([BIAS])


def test_bound_weights_are_saved_with_the_program(tmp_path: Path) -> None:
    program = uc.compile(layer(), params=[WEIGHTS, BIAS], measure=False)
    program.save(tmp_path / "layer.so")
    x = random(4, 16)
    np.testing.assert_allclose(arrays(uc.load(tmp_path / "layer.so")(x)), right(x), rtol=1e-4, atol=1e-5)
