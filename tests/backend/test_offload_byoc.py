"""OffloadBYOC: kernels become calls of libraries, next to the calls that others have put there."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.lowering.build import EXTERNAL_MODS
from unity_collage.passes import (
    AnnotateCandidates,
    EstimateCosts,
    FuseRemaining,
    OffloadBYOC,
    SearchPartition,
)
from unity_collage.testing.fixed_cost import FixedCost

WEIGHTS = np.random.default_rng(1).standard_normal((16, 8), dtype="float32") * 0.2
W = relax.const(WEIGHTS)
X = np.random.default_rng(2).standard_normal((4, 16), dtype="float32")


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            a = R.matmul(x, W)
            b = R.nn.relu(a)
            c = R.tanh(b)
            d = R.nn.softmax(c)
            R.output(d)
        return d


def expected() -> np.ndarray:
    e = np.exp(np.tanh(np.maximum(X @ WEIGHTS, 0)))
    return e / e.sum(axis=-1, keepdims=True)


def partitioned(*backends: str) -> IRModule:
    """Every operator alone, for the first of ``backends`` that takes it."""
    model = FixedCost({"tvm": 1.0, "onednn": 0.5, "openblas": 0.5}, launch=0.0)
    line = [AnnotateCandidates(backends), EstimateCosts(model), SearchPartition()]
    with uc.host_target():
        return tvm.transform.Sequential(line)(Model)


def run(mod: IRModule) -> np.ndarray:
    with uc.host_target() as target:
        machine = relax.VirtualMachine(relax.build(FuseRemaining()(mod), target), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(X)).numpy()


def kinds(mod: IRModule) -> list[str]:
    return [module.kind for module in mod.attrs[EXTERNAL_MODS]]


def calls(mod: IRModule) -> int:
    op = tvm.ir.Op.get("relax.call_dps_packed")
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    return sum(isinstance(b.value, relax.Call) and b.value.op == op for b in bindings)


@I.ir_module
class Outlined:
    @R.function
    def fused_relu_onednn(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        R.func_attr({"Codegen": "onednn"})

        @R.function
        def composite(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            R.func_attr({"Composite": "onednn.relu"})
            with R.dataflow():
                a = R.nn.relu(x)
                R.output(a)
            return a

        result: R.Tensor((4, 16), "float32") = composite(x)
        return result

    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        cls = Outlined
        with R.dataflow():
            a: R.Tensor((4, 16), "float32") = cls.fused_relu_onednn(x)
            b = R.exp(a)
            R.output(b)
        return b


@I.ir_module
class Offloaded:
    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        with R.dataflow():
            a = R.call_dps_packed("fused_relu_onednn", x, out_ty=R.Tensor((4, 16), "float32"))
            b = R.exp(a)
            R.output(b)
        return b


def test_the_call_of_an_outlined_function_becomes_a_call_of_its_symbol() -> None:
    after = OffloadBYOC()(Outlined)
    assert kinds(after) == ["collage.onednn"]
    tvm.ir.assert_structural_equal(after.without_attr(EXTERNAL_MODS), Offloaded)


@pytest.mark.parametrize("backend", ["onednn", "openblas"])
def test_calls_become_calls_of_the_library_with_the_same_numbers(backend: str) -> None:
    mod = OffloadBYOC()(partitioned(backend))
    assert kinds(mod) == [f"collage.{backend}"]
    assert calls(mod) >= 1
    assert not any(
        "Codegen" in (f.attrs or {}) for f in mod.functions.values() if isinstance(f, relax.Function)
    )
    np.testing.assert_allclose(run(mod), expected(), rtol=1e-4)


def test_the_offloaded_script_parses_back_to_a_module_that_builds_and_computes_the_same() -> None:
    mod = OffloadBYOC()(partitioned("onednn"))
    back = tvm.script.from_source(mod.script(show_meta=True))
    np.testing.assert_allclose(run(back), run(mod), rtol=1e-6)


def test_stock_run_codegen_takes_over_after_search_partition() -> None:
    with uc.host_target():
        mod = relax.transform.RunCodegen()(partitioned("onednn"))
    assert kinds(mod) == ["collage.onednn"]
    np.testing.assert_allclose(run(mod), expected(), rtol=1e-4)


def test_two_runs_interleave_and_external_mods_of_the_first_are_kept() -> None:
    """Products to OpenBLAS, offloaded; then a second run gives oneDNN what is left."""
    first = OffloadBYOC()(partitioned("openblas", "tvm"))
    reopened = _opened(first)
    model = FixedCost({"tvm": 1.0, "onednn": 0.5})
    with uc.host_target():
        line = [AnnotateCandidates(("onednn",)), EstimateCosts(model), SearchPartition(), OffloadBYOC()]
        second = tvm.transform.Sequential(line)(reopened)
    assert kinds(second) == ["collage.openblas", "collage.onednn"]
    np.testing.assert_allclose(run(second), expected(), rtol=1e-4)


def _opened(mod: IRModule) -> IRModule:
    """``mod`` with TVM's groups inlined again, so that a second run may regroup them."""
    functions = {
        g: f.without_attr("Primitive") if "Primitive" in (f.attrs or {}) else f
        for g, f in mod.functions_items()
    }
    return relax.transform.InlinePrivateFunctions()(IRModule(functions, attrs=mod.attrs))


def test_functions_of_unknown_code_generators_are_left_alone() -> None:
    @I.ir_module
    class Foreign:
        @R.function
        def theirs(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "somebody_else"})
            with R.dataflow():
                a = R.nn.relu(x)
                R.output(a)
            return a

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Foreign
            with R.dataflow():
                a: R.Tensor((4,), "float32") = cls.theirs(x)
                R.output(a)
            return a

    tvm.ir.assert_structural_equal(OffloadBYOC()(Foreign), Foreign)


def test_an_exported_program_runs_where_only_our_runtime_is_imported(tmp_path) -> None:
    with uc.host_target() as target:
        program = relax.build(FuseRemaining()(OffloadBYOC()(partitioned("onednn"))), target)
    program.export_library(str(tmp_path / "model.so"))
    np.save(tmp_path / "x.npy", X)
    code = f"""
import sys
import numpy as np, tvm
import unity_collage.runtime
unity_collage.runtime.load("onednn")
machine = tvm.relax.VirtualMachine(tvm.runtime.load_module({str(tmp_path / "model.so")!r}), tvm.cpu())
result = machine["main"](tvm.runtime.tensor(np.load({str(tmp_path / "x.npy")!r}))).numpy()
np.save({str(tmp_path / "y.npy")!r}, result)
ours = sorted(name for name in sys.modules if name.startswith("unity_collage"))
run_only = ("unity_collage", "unity_collage.ffi", "unity_collage.tvm_plugin")  # TVM loads the last, for its name
assert all(name in run_only or name.startswith("unity_collage.runtime") for name in ours), ours
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(), rtol=1e-4)
