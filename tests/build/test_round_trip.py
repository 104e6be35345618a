"""After every pass the script parses back: to an equal module, and where libraries are called, to the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import passes, runtime
from unity_collage.annotations import PLAN
from unity_collage.compiler import build
from unity_collage.lowering.build import EXTERNAL_MODS
from unity_collage.testing.fixed_cost import FixedCost

needs_onednn = pytest.mark.skipif(
    runtime.why_unavailable("onednn") is not None, reason=str(runtime.why_unavailable("onednn"))
)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32")


K1, K2 = relax.const(random(8, 3, 3, 3) * 0.2), relax.const(random(8, 8, 1, 1) * 0.2)
BIAS = relax.const(random(1, 8, 1, 1))


@I.ir_module
class Convolutions:
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float32")) -> R.Tensor((1, 8, 4, 4), "float32"):
        with R.dataflow():
            a = R.nn.relu(R.add(R.nn.conv2d(x, K1, padding=(1, 1)), BIAS))
            b = R.nn.max_pool2d(a, (2, 2), strides=(2, 2))
            c = R.nn.conv2d(b, K2)
            d = R.clip(R.add(c, b), 0.0, 6.0)
            R.output(d)
        return d


WQ, WK, WV, WO = (relax.const(random(16, 16, seed=seed) * 0.2) for seed in range(4))
GAMMA, BETA = relax.const(random(16)), relax.const(random(16, seed=1))


@I.ir_module
class Attention:
    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        with R.dataflow():
            q = R.permute_dims(R.reshape(R.matmul(x, WQ), (4, 2, 8)), axes=[1, 0, 2])
            k = R.permute_dims(R.reshape(R.matmul(x, WK), (4, 2, 8)), axes=[1, 2, 0])
            v = R.permute_dims(R.reshape(R.matmul(x, WV), (4, 2, 8)), axes=[1, 0, 2])
            p = R.nn.softmax(R.multiply(R.matmul(q, k), R.const(0.35, "float32")), axis=-1)
            h = R.reshape(R.permute_dims(R.matmul(p, v), axes=[1, 0, 2]), (4, 16))
            y = R.nn.layer_norm(R.add(R.matmul(h, WO), x), GAMMA, BETA, axes=[-1])
            R.output(y)
        return y


MODELS = {"convolutions": (Convolutions, random(1, 3, 8, 8)), "attention": (Attention, random(4, 16))}

STAGES = (
    passes.Prepare(),
    passes.StackProducts(),
    passes.ChannelsLast(),
    passes.AnnotateCandidates(("onednn", "tvm")),
    passes.EstimateCosts(FixedCost({"onednn": 1.0, "tvm": 3.0}, launch=0.1)),
    passes.SearchPartition(),
    passes.OffloadBYOC(),
    passes.FuseRemaining(),
)
NAMES = [stage.info.name.removeprefix("collage.") for stage in STAGES]


def parsed_back(mod: IRModule) -> IRModule:
    return tvm.script.from_source(mod.script(show_meta=True))


def run(mod: IRModule, x: np.ndarray) -> np.ndarray:
    target = uc.host_target()
    with target:
        machine = relax.VirtualMachine(build(mod, target), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def stages(name: str, first: int, last: int, mod: IRModule) -> IRModule:
    with uc.host_target():
        for stage in STAGES[first:last]:
            mod = stage(mod)
    return mod


@needs_onednn
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stage", range(len(STAGES)), ids=NAMES)
def test_the_text_after_a_pass_goes_on_to_the_same_program(name: str, stage: int) -> None:
    """Equality is asked for where it is defined: runtime modules compare by identity."""
    model, x = MODELS[name]
    mod = stages(name, 0, stage + 1, model)
    back = parsed_back(mod)
    if EXTERNAL_MODS not in (mod.attrs or {}):
        assert tvm_ffi.structural_equal(mod, back)
    finished, again = (stages(name, stage + 1, len(STAGES), half) for half in (mod, back))
    np.testing.assert_array_equal(run(again, x), run(finished, x))


@needs_onednn
@pytest.mark.parametrize("name", MODELS)
def test_all_of_them_together_change_no_number(name: str) -> None:
    model, x = MODELS[name]
    line = stages(name, 0, len(STAGES), model)
    assert {kernel.backend for kernel in PLAN.read(line["main"]).kernels} >= {"onednn"}
    plain = relax.VirtualMachine(relax.build(model, tvm.target.Target("llvm")), tvm.cpu())
    expected = plain["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(run(line, x), expected, rtol=1e-4, atol=1e-5)
