"""Programs of several devices: they are compiled, run, saved and refused."""

from __future__ import annotations

import pickle
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

import unity_collage as uc
from unity_collage.annotations import COSTS
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError
from unity_collage.graph.devices import with_listed_devices
from unity_collage.lowering import function_objects
from unity_collage.lowering.object_store import ObjectStore, using
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import AnnotateCandidates, EstimateCosts
from unity_collage.plan.costs import Cost
from unity_collage.target import fields_of

HOST = uc.host_target()
OLD = Target({"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": str(HOST.attrs["mtriple"]), "num-cores": 2})
NEWER = Target({"kind": "llvm", "mcpu": "sapphirerapids", "mattr": ["+amx-fp16"], "num-cores": 2})
WEIGHTS = np.random.default_rng(0).standard_normal((16, 16), "float32") / 4
X = np.random.default_rng(1).standard_normal((4, 16), "float32")
EXPECTED = np.exp(np.maximum(X, 0) @ WEIGHTS @ WEIGHTS), np.maximum(X, 0)


def two_devices(first: Target, second: Target, number: int = 1) -> IRModule:
    """``exp(relu(x) @ weights @ weights)``, whose products are on the second device, and ``relu(x)``."""
    devices = [relax.VDevice(first, 0, "global"), relax.VDevice(second, number, "global")]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "float32", devices[0]))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.nn.relu(x))
            b = builder.emit(relax.op.to_vdevice(a, devices[1]))
            c = builder.emit(relax.op.matmul(b, relax.const(WEIGHTS)))
            d = builder.emit(relax.op.matmul(c, relax.const(WEIGHTS)))
            results = builder.emit_output(relax.Tuple([builder.emit(relax.op.exp(d)), a]))
        builder.emit_func_output(results)
    return with_listed_devices(builder.get())


@I.ir_module
class Branching:
    """An If across devices; both branches and the function that one calls have constants of the second device."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function(private=True)
    def product(x: R.Tensor((4, 16), "float32", "llvm:1")) -> R.Tensor((4, 16), "float32", "llvm:1"):
        with R.dataflow():
            y = R.matmul(x, R.const(WEIGHTS))
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0"), c: R.Tensor((), "bool", "llvm:0")) -> R.Tuple(
        R.Tensor((4, 16), "float32", "llvm:1"), R.Tensor((4, 16), "float32", "llvm:0")
    ):
        cls = Branching
        a = R.nn.relu(x)
        b = R.to_vdevice(a, "llvm:1")
        if c:
            p = cls.product(b)
            y = R.exp(p)
        else:
            q = R.matmul(b, R.const(WEIGHTS + 1))
            y = R.tanh(q)
        return (y, a)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("devices")


@pytest.fixture(scope="module")
def two_ids(folder: Path) -> uc.Program:
    return uc.compile(two_devices(HOST, HOST), database=folder / "costs.db", backends=["tvm"])


def check(results: Any, second: str = "cpu:1") -> None:
    assert [str(result.device) for result in results] == [second, "cpu:0"]
    for result, expected in zip(results, EXPECTED, strict=True):
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)


def test_two_numbers_of_one_target_run(two_ids: uc.Program) -> None:
    check(two_ids(X))
    check(two_ids(two_ids(X)[1]))
    assert two_ids.devices == ("cpu:0", "cpu:1")
    assert two_ids.input_names == ("x",)


def test_the_signature_names_devices(two_ids: uc.Program) -> None:
    text = "'x': float32 (4, 16) on cpu:0 -> '0': float32 (4, 16) on cpu:1, '1': float32 (4, 16) on cpu:0"
    assert str(two_ids.signature) == text


def test_costs_do_not_depend_on_the_number_of_a_device(two_ids: uc.Program, folder: Path) -> None:
    """The database that the program was measured into answers for other numbers: nothing may be measured here."""
    other = two_devices(HOST, HOST, number=3)
    check(uc.compile(other, database=folder / "costs.db", backends=["tvm"], locked=True)(X), "cpu:3")


def test_a_buffer_for_a_result_may_be_anywhere_on_the_host(two_ids: uc.Program) -> None:
    out = np.zeros((4, 16), "float32"), np.zeros((4, 16), "float32")
    two_ids(X, out=out)
    np.testing.assert_allclose(out, EXPECTED, rtol=1e-5)


def test_several_threads_call_a_program_of_several_devices(two_ids: uc.Program) -> None:
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(lambda _: two_ids(X), range(8)):
            check(results)


def test_a_program_of_several_devices_is_timed(two_ids: uc.Program) -> None:
    assert two_ids.benchmark(X, seconds=0.02)["runs"] >= 20


def test_a_saved_program_keeps_its_devices(two_ids: uc.Program, folder: Path) -> None:
    two_ids.save(folder / "program.so")
    loaded = uc.load(folder / "program.so")
    assert loaded.devices == two_ids.devices and str(loaded.signature) == str(two_ids.signature)
    check(loaded(X))
    check(pickle.loads(pickle.dumps(loaded))(X))


def test_a_program_of_several_devices_has_no_bundle(two_ids: uc.Program, folder: Path) -> None:
    with pytest.raises(CollageError, match="one device, and this one runs on cpu:0, cpu:1"):
        two_ids.save(folder / "bundle", bundle=True)


def target_cpus(mod: IRModule, monkeypatch: pytest.MonkeyPatch) -> tuple[uc.Program, dict[str, set[str]]]:
    """A program whose kernels are chosen by rule, and the processors in the LLVM text of each function."""
    found: dict[str, set[str]] = {}
    original = function_objects._library

    def noted(functions: Any, target: Target) -> Any:
        library = original(functions, target)
        cpus = set(re.findall('"target-cpu"="([^"]*)"', library.inspect_source("ll")))
        for func in functions.values():
            operators = "matmul" if "matmul" in str(func) else "relu" if "T.max" in str(func) else "vm"
            found.setdefault(operators, set()).update(cpus)
        return library

    monkeypatch.setattr(function_objects, "_library", noted)
    with using(ObjectStore()):
        return uc.compile(mod, measure=False, backends=["tvm"], recompile=True), found


def test_each_kernel_is_compiled_for_the_processor_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    program, cpus = target_cpus(two_devices(HOST, OLD, number=0), monkeypatch)
    host = str(HOST.attrs["mcpu"])
    assert cpus["relu"] == {host} and cpus["matmul"] == {"x86-64-v3"}
    check(program(X), "cpu:0")


def costed(mod: IRModule, model: MeasuredCost) -> dict[str, Cost]:
    """The costs of TVM's kernels in ``main``, by key."""
    with HOST:
        steps = [AnnotateCandidates(backends=("tvm",)), EstimateCosts(model)]
        return dict(COSTS.read(tvm.transform.Sequential(steps)(mod)["main"]).by_key)


def test_kernels_of_two_processors_are_measured_for_each(folder: Path) -> None:
    with MeasuredCost(CostDatabase(folder / "two.db")) as model:
        costs = costed(two_devices(HOST, OLD), model)
    assert all(cost.seconds for cost in costs.values())
    with sqlite3.connect(folder / "two.db") as stored:
        text = "".join(stored.iterdump())
    assert '"mcpu":"x86-64-v3"' in text and f'"mcpu":"{HOST.attrs["mcpu"]}"' in text


def test_kernels_for_a_processor_that_is_not_here_have_a_reason(folder: Path) -> None:
    with MeasuredCost(CostDatabase(folder / "newer.db")) as model:
        costs = costed(two_devices(HOST, NEWER), model)
    reasons = [cost.reason for cost in costs.values() if cost.seconds is None]
    assert reasons and all("sapphirerapids cannot be measured here" in reason for reason in reasons)


@pytest.mark.skipif(uc.num_threads() < 2, reason="no device has fewer cores than the pool has threads")
def test_kernels_of_a_device_with_one_core_run_on_one_thread(folder: Path) -> None:
    one_core = Target({**fields_of(HOST), "num-cores": 1})
    program = uc.compile(two_devices(HOST, one_core), database=folder / "cores.sqlite", recompile=True)
    assert program.plan is not None
    threads = {kernel.device: kernel.threads for kernel in program.plan["main"].kernels}
    assert threads["llvm:1"] == 1
    for found, right in zip(program(X), EXPECTED, strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-4)


def test_a_processor_that_is_not_here_is_not_measured() -> None:
    with pytest.raises(CollageError, match=r"sapphirerapids cannot be measured here.*measure=False"):
        uc.compile(two_devices(HOST, NEWER))


def test_a_program_for_a_processor_that_is_not_here_does_not_run() -> None:
    program = uc.compile(two_devices(HOST, NEWER), measure=False, backends=["tvm"])
    with pytest.raises(CollageError, match="cannot run here: it was compiled for a processor with amx"):
        program(X)


@pytest.mark.parametrize("measure", [False, True])
def test_branches_and_private_functions_of_several_devices(measure: bool, folder: Path) -> None:
    options = {"database": folder / "branches.db"} if measure else {}
    program = uc.compile(Branching, measure=measure, backends=["tvm"], **options)
    a = np.maximum(X, 0)
    for condition, expected in ((True, np.exp(a @ WEIGHTS)), (False, np.tanh(a @ (WEIGHTS + 1)))):
        found = program(X, np.array(condition))
        assert [str(result.device) for result in found] == ["cpu:1", "cpu:0"]
        np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[1].numpy(), a, rtol=1e-5)


def test_libraries_run_on_other_devices_than_the_first() -> None:
    program = uc.compile(two_devices(HOST, HOST), measure=False, backends=["onednn", "tvm"])
    assert program.plan is not None
    assert "onednn" in {kernel.backend for kernel in program.plan["main"].kernels}
    check(program(X))


@pytest.mark.skipif(uc.runtime.cuda.why_unavailable() is None, reason="there is a CUDA device")
def test_a_half_for_a_gpu_is_refused_where_there_is_none() -> None:
    with pytest.raises(CollageError, match="values are on a CUDA device, and there is none here"):
        uc.compile(two_devices(HOST, Target({"kind": "cuda", "arch": "sm_90"})))


def test_other_devices_are_refused() -> None:
    with pytest.raises(CollageError, match="values are on ext_dev:1, and programs run on CPUs"):
        uc.compile(two_devices(HOST, Target("ext_dev")))
