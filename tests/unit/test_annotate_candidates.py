"""AnnotateCandidates: it writes attributes and keeps the program."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, DECLINED
from unity_collage.backends.cublas.backend import CUBLAS
from unity_collage.errors import CollageError, UnavailableBackend, UnknownBackend
from unity_collage.graph.variants import LIKE
from unity_collage.passes import AnnotateCandidates
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends

HOST = Target("llvm")
TOY = fake_backend("toy", "relax.nn.relu", why_not={"relax.exp": "toys have no exp"})


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            R.output(b)
        return b


@I.ir_module
class Expected:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        R.func_attr(
            {
                "collage.candidates": [
                    {"id": 0, "backend": "toy", "rule": "fake", "label": "relu", "bindings": [0]},
                    {"id": 1, "backend": "tvm", "rule": "cone", "label": "relu", "bindings": [0]},
                    {"id": 2, "backend": "tvm", "rule": "cone", "label": "exp", "bindings": [1]},
                    {"id": 3, "backend": "tvm", "rule": "cone", "label": "relu+exp", "bindings": [0, 1]},
                ],
                "collage.declined": [{"backend": "toy", "binding": 1, "reason": "toys have no exp"}],
            }
        )
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            R.output(b)
        return b


def annotate(mod: IRModule, *names: str) -> IRModule:
    with only_backends(TOY), HOST:
        return AnnotateCandidates(names or None)(mod)


def test_candidates_and_refusals_are_attributes() -> None:
    tvm.ir.assert_structural_equal(annotate(Before), Expected)


def test_without_tvm_in_the_list_tvm_gets_only_the_rest() -> None:
    found = CANDIDATES.read(annotate(Before, "toy")["main"])
    assert [(c.backend, c.indexes) for c in found] == [("toy", (0,)), ("tvm", (1,))]


def test_the_target_names_backends_as_libs() -> None:
    with only_backends(TOY), Target({"kind": "llvm", "libs": ["tvm"]}):
        found = CANDIDATES.read(AnnotateCandidates()(Before)["main"])
    assert {candidate.backend for candidate in found} == {"tvm"}


def test_functions_that_somebody_has_grouped_are_left_alone() -> None:
    func = graphs.chain().with_attr("Primitive", 1)
    mod = IRModule({"main": func})
    tvm.ir.assert_structural_equal(annotate(mod), mod)


def test_an_unknown_backend_is_one_line_that_lists_the_known() -> None:
    with pytest.raises(UnknownBackend, match="no backend named 'tpu'; there are: toy, tvm"):
        annotate(Before, "tpu")


def test_a_named_backend_must_be_available() -> None:
    from dataclasses import replace

    gone = replace(TOY, why_unavailable=lambda: "its library is missing")
    with only_backends(gone), HOST, pytest.raises(UnavailableBackend, match="its library is missing"):
        AnnotateCandidates(("toy",))(Before)


@I.ir_module
class Free:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        return a


def test_free_sizes_without_a_sample_are_refused_with_a_reason() -> None:
    refusals = DECLINED.read(annotate(Free)["main"])
    assert {(r.backend, r.reason) for r in refusals} == {
        ("toy", "a has no static shape: (n)"),
        ("tvm", "there is no sample of the size n, at which a kernel could be measured"),
    }


def test_free_sizes_with_a_sample_are_those_of_backends_that_take_them() -> None:
    sampled = IRModule({"main": Free["main"].with_attr(LIKE, {"n": 8})})
    found = CANDIDATES.read(annotate(sampled)["main"])
    assert {(candidate.backend, candidate.indexes) for candidate in found} == {("tvm", (0,))}


def test_operands_are_rounded_to_tf32_only_if_asked() -> None:
    @I.ir_module
    class Product:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 4), "float32")) -> R.Tensor(
            (4, 4), "float32"
        ):
            with R.dataflow():
                y = R.matmul(x, w)
                R.output(y)
            return y

    def rules(tf32: bool) -> list[str]:
        with (
            only_backends(replace(CUBLAS, why_unavailable=lambda: None)),
            Target({"kind": "cuda", "arch": "sm_90"}, host=HOST),
        ):
            found = AnnotateCandidates(("cublas",), tf32=tf32)(Product)["main"]
        return [each.rule for each in CANDIDATES.read(found)]

    exact = [f"algorithm{k}" for k in range(3)]
    assert rules(tf32=False) == exact
    assert rules(tf32=True) == [*exact, *(f"tf32_{name}" for name in exact)]
    with HOST, pytest.raises(CollageError, match="tf32 is for NVIDIA GPUs"):
        AnnotateCandidates(tf32=True)(Product)


def test_what_is_left_to_tvm_is_judged_like_all_else() -> None:
    """Also in a function of forced backends a limit of a rule of TVM, and a rule that is switched off, is named."""
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(14):
                value = builder.emit(R.exp(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    mod = builder.get()
    with only_backends(TOY), HOST:
        found = AnnotateCandidates(("toy",))(mod)["main"]
        without = AnnotateCandidates(("toy",), without=("cone",))(mod)["main"]
    assert any(each.backend == "tvm" and each.condition == "limit" for each in DECLINED.read(found))
    assert "cone" not in {each.rule for each in CANDIDATES.read(without)}
    assert "cone is switched off" in {each.reason for each in DECLINED.read(without)}
