"""Regions of inference runtimes: measured like other kernels, mixed with them, saved, refused where they are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.annotations import CANDIDATES, COSTS
from unity_collage.backends import registry
from unity_collage.backends.base import Backend
from unity_collage.backends.runtimes import lowering
from unity_collage.cli import main as cli
from unity_collage.compiler import compile_with
from unity_collage.cost.method import Method
from unity_collage.errors import CollageError
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import AnnotateCandidates, EstimateCosts
from unity_collage.pipeline import collage
from unity_collage.plan.check import checked
from unity_collage.plan.costs import Cost
from unity_collage.sessions import RUNTIMES, SessionModel, session_module
from unity_collage.specs import PartitionSpec
from unity_collage.target import host_target
from unity_collage.testing.conformance.cases import function
from unity_collage.testing.fake_backend import installed
from unity_collage.testing.fixed_cost import FixedCost

HERE = Path(__file__).parent
QUICK = Method(min_runs=3, max_runs=3, max_warmup_seconds=0.0, max_seconds=60.0)
RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((1, 3, 8, 8), dtype=np.float32)


READ_ONNX = [name for name, found in RUNTIMES.items() if found.convert is None]


@pytest.fixture(params=READ_ONNX)
def runtime(request: pytest.FixtureRequest) -> str:
    """Each installed runtime that reads ONNX models."""
    if reason := RUNTIMES[request.param].why_unavailable():
        pytest.skip(reason)
    return request.param


def _network() -> onnx.ModelProto:
    """Two convolutions with a residual between, and a classifier with a softmax."""
    held = {
        "w1": RNG.standard_normal((16, 3, 3, 3)),
        "w2": RNG.standard_normal((16, 16, 3, 3)) / 12,
        "b": RNG.standard_normal((16,)),
        "w3": RNG.standard_normal((16, 5)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["s"]),
        helper.make_node("Relu", ["s"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NETWORK = _network()
(EXPECTED,) = ReferenceEvaluator(NETWORK).run(None, {"x": IMAGE})


def _is_right(program: uc.Program) -> None:
    for _ in range(2):
        np.testing.assert_allclose(program(IMAGE).numpy(), EXPECTED, rtol=1e-4, atol=1e-6)


def _backends(program: uc.Program) -> list[str]:
    return [kernel.backend for kernel in program.plan["main"].kernels]


def _forced(runtime: str, costs: Mapping[str, float | str], backends: Sequence[str] = ("tvm",)) -> uc.Program:
    """The program of the cheapest plan by ``costs``."""
    return compile_with(collage([*backends, runtime], FixedCost(costs, default=100.0)), NETWORK)


def _layer() -> IRModule:
    """``relu(x @ weights)``."""
    weights = relax.const(RNG.standard_normal((32, 16), dtype=np.float32))
    return IRModule({"main": function(lambda x: R.nn.relu(R.matmul(x, weights)), [(4, 32)])})


def _measured(backends: tuple[str, ...], folder: Path) -> dict[str, Cost]:
    """What the kernels of a small function cost, by key."""
    with uc.host_target(), MeasuredCost(uc.CostDatabase(folder / "costs.sqlite"), method=QUICK) as model:
        mod = EstimateCosts(model)(AnnotateCandidates(backends)(_layer()))
    return COSTS.read(mod["main"]).by_key


def test_regions_are_measured_and_checked_like_other_kernels(runtime, tmp_path) -> None:
    costs = {
        key: cost for key, cost in _measured((runtime, "tvm"), tmp_path).items() if key.startswith(runtime)
    }
    assert len(costs) == 2  # the product alone, and all
    assert all(cost.seconds and cost.runs == 3 for cost in costs.values()), costs


def test_a_plan_mixes_regions_with_other_kernels(runtime) -> None:
    """One region is cheap: the first convolution with what is behind it. TVM makes the rest."""
    program = _forced(runtime, {f"{runtime}:conv2d+add+relu": 0.1, runtime: 1000.0, "tvm": 1.0})
    assert set(_backends(program)) == {runtime, "tvm"}
    assert "collage." + runtime in {module.kind for module in program.mod.attrs["external_mods"]}
    _is_right(program)
    assert checked(program.plan["main"]).holds


def test_the_whole_function_may_be_one_region(runtime) -> None:
    program = _forced(runtime, {runtime: 1.0})
    assert _backends(program) == [runtime]
    _is_right(program)


def test_regions_mix_with_those_of_another_library(runtime) -> None:
    if reason := registry.why_unavailable(registry.get("onednn")):
        pytest.skip(reason)
    costs = {f"{runtime}:conv2d+add+relu": 0.1, runtime: 1000.0, "onednn": 1.0, "tvm": 10.0}
    program = _forced(runtime, costs, ("onednn", "tvm"))
    assert {runtime, "onednn"} <= set(_backends(program))
    _is_right(program)


def test_a_spec_names_a_runtime(runtime) -> None:
    backend, target = registry.get(runtime), host_target()
    spec = PartitionSpec("theirs", target, backend.rule(target), runtime)
    program = compile_with(collage(["tvm"], FixedCost({runtime: 1.0}, default=100.0), specs=[spec]), NETWORK)
    assert _backends(program) == [runtime]
    _is_right(program)


def test_a_saved_program_says_which_runtime_its_region_needs(runtime, tmp_path, capsys) -> None:
    path = tmp_path / "mixed.so"
    program = _forced(runtime, {f"{runtime}:conv2d+add+relu": 0.1, runtime: 1000.0, "tvm": 1.0})
    program.save(path)
    script = f"""
import numpy as np
import unity_collage as uc
image = np.frombuffer({IMAGE.tobytes()!r}, np.float32).reshape(1, 3, 8, 8)
print(*uc.load({str(path)!r})(image).numpy().ravel().tolist())
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose([float(each) for each in said.split()], EXPECTED.ravel(), rtol=1e-4, atol=1e-6)
    capsys.readouterr()
    assert cli.main(["info", str(path)]) == 0
    assert runtime in capsys.readouterr().out


def test_nobody_asks_for_regions_by_default(runtime) -> None:
    with uc.host_target():
        mod = AnnotateCandidates()(_layer())
    assert not [each for each in CANDIDATES.read(mod["main"]) if each.backend == runtime]


def test_weights_and_settings_are_those_of_the_session(runtime) -> None:
    asked: list[SessionModel] = []
    backend = registry.get(runtime)
    real = lowering.session_module
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            lowering, "session_module", lambda name, models: asked.extend(models) or real(name, models)
        )
        _forced(runtime, {runtime: 1.0})
    (model,) = asked
    assert backend.has_own_threads
    assert model.settings == RUNTIMES[runtime].settings_for("f32", is_region=True)
    read = onnx.load_from_string(model.onnx)
    onnx.checker.check_model(read)
    assert [node.op_type for node in read.graph.node if node.op_type in ("Conv", "Transpose")] == [
        "Conv",
        "Conv",
    ]
    assert sum(np.prod(each.dims) > 100 for each in read.graph.initializer) >= 2


def test_nan_is_not_greater_than_a_number(runtime) -> None:
    x, y = np.array([np.nan, 1, 2, np.nan], "float32"), np.array([0, np.nan, 1, np.nan], "float32")
    for compared, right in ((R.greater, x > y), (R.greater_equal, x >= y)):
        func = function(compared, [(4,), (4,)]).with_attr("global_symbol", "region")
        region = session_module(runtime, [lowering.session_of(func, RUNTIMES[runtime])])["region"]
        found = np.from_dlpack(region(*map(tvm_ffi.from_dlpack, (x, y))))
        np.testing.assert_array_equal(found, right)


def test_options_of_a_library_reach_what_is_measured_and_what_is_built(tmp_path: Path) -> None:
    if reason := RUNTIMES["openvino"].why_unavailable():
        pytest.skip(reason)
    right, wrong = "openvino:NUM_STREAMS=1", "openvino:NUMSTREAMS=1"
    costs = _measured((wrong, "tvm"), tmp_path)
    refused = [cost.reason for key, cost in costs.items() if key.startswith("openvino")]
    assert refused and all("Unsupported property NUMSTREAMS" in reason for reason in refused), refused
    _is_right(_forced(right, {"openvino": 1.0}))
    with pytest.raises(CollageError, match="Unsupported property NUMSTREAMS"):
        uc.compile(_network(), backends=wrong)


PLANTED = {"lies": "wrong numbers: output 0 is off by", "does_not_compile": "Rectify"}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_a_reason(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := RUNTIMES["onnxruntime"].why_unavailable():
        pytest.skip(reason)
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    with installed(tmp_path / "site", fault, values="planted_regions:REGIONS"):
        costs = _measured((f"fake_{fault}", "tvm"), tmp_path)
    wrong = {key: cost for key, cost in costs.items() if key.startswith("fake_")}
    assert {cost.seconds for cost in wrong.values()} == {None}
    assert all(PLANTED[fault] in cost.reason for cost in wrong.values()), wrong
    assert any(cost.seconds for key, cost in costs.items() if key.startswith("tvm"))


def test_exclusions_reach_the_plan(runtime, monkeypatch) -> None:
    """The cheapest mixed plan is forbidden, so one of the two makes all."""
    known: dict[str, Backend] = dict(registry.known())
    known[runtime] = replace(known[runtime], excludes=frozenset({"onednn"}))
    monkeypatch.setattr(registry, "known", lambda: known)
    costs = {f"{runtime}:conv2d+add+relu": 0.1, runtime: 1000.0, "onednn": 1.0, "tvm": 10.0}
    program = _forced(runtime, costs, ("onednn", "tvm"))
    assert not {runtime, "onednn"} <= set(_backends(program))
    _is_right(program)
    assert checked(program.plan["main"]).holds
