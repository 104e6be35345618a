"""Models with free sizes: right at every size, with plans of their own for samples."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from compiled import DrawnCost, arrays
from sized_models import convolutions, decoder, detector, llama, perceptron, transformer
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.calling.sharing import shared_results
from unity_collage.compiler import compile_with
from unity_collage.errors import CollageError
from unity_collage.passes import MakeVariants
from unity_collage.passes.split_sizes import PARTS
from unity_collage.pipeline import collage
from unity_collage.target import target_of

ort = pytest.importorskip("onnxruntime")


def drawn(model: onnx.ModelProto, *sizes: int) -> np.ndarray:
    """The input of a model whose first sizes are these."""
    ty = model.graph.input[0].type.tensor_type
    shape = [*sizes, *(dim.dim_value for dim in ty.shape.dim[len(sizes) :])]
    random = np.random.default_rng(sum(sizes))
    if ty.elem_type == onnx.TensorProto.INT64:
        return random.integers(0, 50, shape)
    return random.standard_normal(shape, dtype=np.float32)


def check(program: uc.Program, model: onnx.ModelProto, *sizes: int) -> None:
    x = drawn(model, *sizes)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (right,) = session.run(None, {"x": x})
    np.testing.assert_allclose(arrays(program(x)), right, rtol=1e-4, atol=1e-5)


def test_images_of_any_size_have_one_plan_of_libraries() -> None:
    model = detector(channels=4, stages=2)
    program = uc.compile(model, measure=False)
    plan = program.plan["main"]
    assert plan.kernels and all(kernel.backend != "tvm" for kernel in plan.kernels)
    remark = "one plan for all sizes, measured at batch 1, height 224, width 224; batch 1, "
    assert any(each.startswith(remark) for each in plan.remarks)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in ((1, 3, 32, 32), (2, 3, 17, 30), (1, 3, 1, 5)):
        x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        np.testing.assert_allclose(arrays(program(x)), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


SAMPLES: dict[Any, dict[str, list[int]]] = {
    perceptron: {"batch": [1, 4]},
    convolutions: {"batch": [1, 4]},
    transformer: {"batch": [2], "length": [4, 8]},
}
SIZES: list[tuple[Any, list[tuple[int, ...]]]] = [
    (perceptron, [(1,), (2,), (4,), (7,)]),
    (convolutions, [(1,), (2,), (4,), (7,)]),
    (transformer, [(2, 4), (2, 8), (1, 1), (2, 5), (1, 24)]),
]


@cache
def by_rule(make: Any) -> uc.Program:
    """The program of a model for its samples, whose kernels are chosen by rule."""
    return uc.compile(make(), shapes=SAMPLES[make], measure=False)


@pytest.mark.parametrize(("make", "sizes"), SIZES)
def test_sizes_with_a_plan_and_those_between(make: Any, sizes: list[Any]) -> None:
    model, program = make(), by_rule(make)
    for each in sizes:
        check(program, model, *each)
    assert program.signature is not None and program.signature.shared == ()


@pytest.mark.parametrize(("make", "sizes"), SIZES)
def test_plans_that_mix_all_backends(make: Any, sizes: list[Any]) -> None:
    model, samples = make(), SAMPLES[make]
    passes = [MakeVariants(samples), *collage(None, DrawnCost("sizes")).passes]
    program = compile_with(tvm.transform.Sequential(passes), model)
    for each in sizes:
        check(program, model, *each)
    others = {name for name in program.plan if name not in ("main", *program.plan["main"].variants)}
    assert {"main_any_size"} <= others <= {"main_any_size", *PARTS}


def cached(length: int, past: int, heads: int) -> dict[str, np.ndarray]:
    """The inputs of a decoder of one layer: a number of tokens behind ``past`` others."""
    random = np.random.default_rng(length + past)
    caches = ["key0", "value0"]
    return {
        "x": random.integers(0, 50, (1, length)),
        **{name: random.standard_normal((1, heads, past, 8), dtype=np.float32) for name in caches},
    }


@pytest.mark.parametrize(("make", "heads"), [(decoder, 4), (llama, 2)])
@pytest.mark.parametrize("cost", [None, DrawnCost("decoder")])
def test_a_decoder_reads_prompts_and_single_tokens(make: Any, heads: int, cost: DrawnCost | None) -> None:
    """A variant may leave another size open: here single tokens, with any number of tokens in the cache."""
    model, samples = make(layers=1), {"length": [1], "past": []}
    if cost is None:
        program = uc.compile(model, shapes=samples, measure=False)
    else:
        passes = tvm.transform.Sequential([MakeVariants(samples), *collage(None, cost).passes])
        program = compile_with(passes, model)
    assert list(program.plan["main"].variants) == ["main_length_1"]
    assert any(kernel.backend != "tvm" for kernel in program.plan["main_length_1"].kernels)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for length, past in ((9, 0), (1, 9), (1, 10), (3, 11), (1, 0)):
        inputs = cached(length, past, heads)
        for got, right in zip(program(inputs), session.run(None, inputs), strict=True):
            np.testing.assert_allclose(got.numpy(), right, rtol=1e-4, atol=1e-5)


def test_queries_that_share_keys_are_one_attention() -> None:
    program = uc.compile(llama(layers=1), backends=["kernels", "tvm"], shapes={"length": [1]}, measure=False)
    for name in ("main_length_1", "main_any_size"):
        labels = [kernel.label for kernel in program.plan[name].kernels]
        assert "kernels.attention" in labels and not any("broadcast_to" in label for label in labels)


def test_a_variant_is_what_a_compile_of_its_size_makes() -> None:
    model = transformer()
    program = uc.compile(model, shapes={"batch": [1], "length": [8]}, measure=False)
    fixed = uc.compile(model, shapes={"batch": 1, "length": 8}, measure=False)
    of_variant, of_fixed = program.plan["main_batch_1_length_8"], fixed.plan["main"]
    assert [k.label for k in of_variant.kernels] == [k.label for k in of_fixed.kernels]
    assert of_variant.sizes == {"batch": 1, "length": 8}
    assert program.plan["main"].variants == {"main_batch_1_length_8": {"batch": 1, "length": 8}}


def test_likely_sizes_get_plans_unless_the_caller_wants_none() -> None:
    likely = uc.compile(perceptron(), measure=False)
    variants = [f"main_batch_{count}" for count in (1, 8, 32)]
    assert list(likely.plan) == ["main", *variants, "main_any_size"]
    assert list(uc.compile(perceptron(), shapes={"batch": []}, measure=False).plan) == ["main"]


def test_a_length_beyond_the_table_of_positions_has_no_plan() -> None:
    program = uc.compile(transformer(), shapes={"length": [8, 32], "batch": [1]}, measure=False)
    assert list(program.plan["main"].variants) == ["main_length_8_batch_1"]
    assert any(remark.startswith("no variant for length 32") for remark in program.plan["main"].remarks)


def test_a_wrong_size_is_the_error_of_a_model_without_variants() -> None:
    program = by_rule(perceptron)
    reason = r"input 'x' takes float32 \(batch, 32\); float32 \(4, 31\) was given"
    with pytest.raises(CollageError, match=reason):
        program(np.zeros((4, 31), np.float32))


def test_a_saved_program_has_its_variants(tmp_path: Path) -> None:
    by_rule(convolutions).save(tmp_path / "program.so")
    loaded = uc.load(tmp_path / "program.so")
    for rows in (1, 3, 4):
        check(loaded, convolutions(), rows)


def test_relax_build_alone_makes_a_program_of_the_module() -> None:
    model = perceptron()
    mod = MakeVariants({"batch": [1, 4]})(uc.import_model(model).mod)
    machine = relax.VirtualMachine(relax.build(mod, uc.host_target()), tvm.cpu())
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in (1, 3, 4):
        x = drawn(model, rows)
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(got, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


@I.ir_module
class Several:
    """One result is computed, the other is the input."""

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tuple(
        R.Tensor(("n", 4), "float32"), R.Tensor(("n", 4), "float32")
    ):
        with R.dataflow():
            a = R.nn.relu(x)
            b = (a, x)
            R.output(b)
        return b


def test_a_result_that_is_an_input_is_copied_in_variants_too() -> None:
    program = uc.compile(Several, shapes={"n": [1, 2]}, measure=False)
    for rows in (1, 2, 3):
        x = np.full((rows, 4), -1.0, np.float32)
        computed, same = program(x)
        np.from_dlpack(same)[...] = 5.0
        assert (arrays(computed) == 0.0).all() and (x == -1.0).all()


def test_results_in_memory_of_their_own_are_not_copied() -> None:
    mod = MakeVariants({"n": [1, 2]})(_of_two_results())
    with uc.host_target():
        final = collage(["tvm"], DrawnCost("own"))(mod)
    assert shared_results(final) == ()


def _of_two_results() -> IRModule:
    @I.ir_module
    class Two:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tuple(
            R.Tensor(("n", 4), "float32"), R.Tensor(("n", 4), "float32")
        ):
            with R.dataflow():
                a = R.exp(x)
                b = R.tanh(x)
                c = (a, b)
                R.output(c)
            return c

    return Two


def test_samples_of_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from unity_collage import placing

    monkeypatch.setattr(placing, "checked_target", lambda *_: target_of("cuda -arch=sm_90"))
    with pytest.raises(CollageError, match="sample sizes are for CPUs"):
        uc.compile(perceptron(), shapes={"batch": [1]}, target="cuda", measure=False)
