"""Our kernels on bfloat16, with every instruction set of this machine: widened while it is read, rounded once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from lowered_function import bound, constant, function, nn, op
from native_program import create
from tvm import relax
from tvm.ir import IRModule

from unity_collage import reference, runtime
from unity_collage.annotations import CANDIDATES
from unity_collage.backends.kernels import lower
from unity_collage.measure.guard import output_types
from unity_collage.measure.inputs import random_inputs
from unity_collage.passes.annotate_candidates import AnnotateCandidates
from unity_collage.target import host_target

if reason := runtime.why_unavailable("kernels"):
    pytest.skip(reason, allow_module_level=True)

runtime.load("kernels")
ISAS = [str(isa) for isa in tvm_ffi.get_global_func("collage.kernels.isas")()]


def narrow(*shape: int) -> relax.Expr:
    values = np.random.default_rng(7).standard_normal(shape, dtype="float32")
    return relax.const(values.astype(ml_dtypes.bfloat16), "bfloat16")


def rounded(x: relax.Expr) -> relax.Expr:
    return bound(op.astype(x, "bfloat16"))


def wide(x: relax.Expr) -> relax.Expr:
    return bound(op.astype(x, "float32"))


def convolution(x: relax.Expr, out: int = 16, inputs: int = 16, **attrs: Any) -> relax.Expr:
    return bound(nn.conv2d(x, narrow(out, 3, 3, inputs), data_layout="NHWC", kernel_layout="OHWI", out_dtype="float32",
                           padding=(1, 1), **attrs))  # fmt: skip


def residual(x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return rounded(nn.relu(bound(op.add(bound(op.add(convolution(x), constant(16))), wide(y)))))


def scaled(x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return bound(op.multiply(bound(nn.silu(convolution(x))), wide(y)))


def beside(x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return op.concat([rounded(nn.relu(convolution(x))), y], axis=-1)


def fields(x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return rounded(convolution(bound(op.concat([x, y], axis=-1)), inputs=21))


def attention(q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
    scores = bound(op.matmul(q, bound(op.permute_dims(k, [0, 2, 1])), "float32"))
    shares = rounded(nn.softmax(wide(rounded(bound(op.multiply(scores, relax.const(0.3))))), -1))
    return op.permute_dims(rounded(bound(op.matmul(shares, v, "float32"))), [1, 0, 2])


def masked(q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr) -> relax.Expr:
    scores = bound(op.add(bound(op.matmul(q, bound(op.permute_dims(k, [0, 2, 1])), "float32")), wide(mask)))
    return bound(op.matmul(rounded(nn.softmax(scores, -1)), v, "float32"))


IMAGE: Any = (2, 9, 7, 16)
HEADS: Any = [(3, 21, 5), (3, 37, 5), (3, 37, 19)]
WINOGRAD = ("kernels.winograd4", "kernels.winograd2")
CASES: dict[str, tuple[tuple[str, ...], Callable[..., relax.Expr], list[Any]]] = {
    "wide result": (WINOGRAD, convolution, [IMAGE]),
    "residual": (WINOGRAD, residual, [IMAGE, IMAGE]),
    "factor": (WINOGRAD, scaled, [IMAGE, IMAGE]),
    "concat": (WINOGRAD, beside, [IMAGE, (2, 9, 7, 5)]),
    "fields of a concat": (WINOGRAD, fields, [IMAGE, (2, 9, 7, 5)]),
    "odd channels": (WINOGRAD, lambda x: rounded(convolution(x, 21, 19)), [(1, 9, 7, 19)]),
    "groups of 4": (("kernels.grouped",), lambda x: rounded(convolution(x, 16, 4, groups=4)), [IMAGE]),
    "strided groups": (
        ("kernels.grouped",),
        lambda x: rounded(convolution(x, 32, 16, groups=2, strides=(2, 2))),
        [(1, 9, 7, 32)],
    ),
    "attention": (("kernels.attention",), attention, HEADS),
    "masked attention": (("kernels.attention",), masked, [*HEADS, (21, 37)]),
}
ONE_BY_ONE = [(name, label) for name, (labels, *_) in CASES.items() for label in labels]


def outputs_of(func: relax.Function, label: str, isa: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    text, blob = lower([func.with_attr("Composite", label)], ["main"])
    programs = json.loads(text)
    for step in programs["programs"][0]["steps"]:
        step["attrs"]["isa"] = isa
    outputs = [tvm.runtime.empty(shape, dtype) for shape, dtype in output_types(func)]
    create("kernels", programs, blob).get_function("main")(*map(tvm.runtime.tensor, inputs), *outputs)
    return [tensor.numpy() for tensor in outputs]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("name", "label"), ONE_BY_ONE)
def test_numbers(name: str, label: str, isa: str):
    _, body, shapes = CASES[name]
    func = function(body, *shapes, dtype="bfloat16")
    inputs = random_inputs(func)
    for have, want in zip(outputs_of(func, label, isa, inputs), reference.run(func, inputs), strict=True):
        assert have.dtype == want.dtype
        have, want = have.astype("float64"), want.astype("float64")
        # A unit in the last of eight bits is 2^-7; the shares of an attention are not rounded here.
        assert np.abs(have - want).max() <= 2**-7 * np.abs(want).max()


@pytest.mark.parametrize(("name", "label"), ONE_BY_ONE)
def test_casts_are_taken_in(name: str, label: str):
    """All of a case is one candidate."""
    _, body, shapes = CASES[name]
    with host_target():
        mod = IRModule({"main": function(body, *shapes, dtype="bfloat16")})
        found = CANDIDATES.read(AnnotateCandidates(("kernels",))(mod)["main"])
    covered = [len(nodes) for candidate in found for its, nodes in candidate.composites if its == label]
    assert max(covered) == sum(isinstance(b.value, relax.Call) for b in mod["main"].body.blocks[0].bindings)


@pytest.mark.parametrize("isa", ISAS)
def test_results_are_rounded_to_the_nearest_even_number(isa: str):
    """A filter that copies its input, plus a number that takes each result midway between two, or next to it, or out of
    range."""
    filters = np.zeros((16, 3, 3, 16), "float32")
    filters[range(16), 1, 1, range(16)] = 1
    near = np.array([1.0, 3.0, 5.0, 0.99, 1.01, 2.99, 3.01, -1.0, -3.0, -1e3, 0.0], "float32") * 2.0**-8
    steps = np.concatenate([near, np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38], "float32")])

    def body(x: relax.Expr) -> relax.Expr:
        kernel = relax.const(filters.astype(ml_dtypes.bfloat16), "bfloat16")
        made = nn.conv2d(
            x, kernel, data_layout="NHWC", kernel_layout="OHWI", out_dtype="float32", padding=(1, 1)
        )
        return rounded(bound(op.add(bound(made), relax.const(steps, "float32"))))

    func = function(body, (1, 2, 2, 16), dtype="bfloat16")
    (out,) = outputs_of(func, "kernels.winograd2", isa, [np.ones((1, 2, 2, 16), ml_dtypes.bfloat16)])
    expected = (1 + steps).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(out[0, 0, 0].astype("float32"), expected.astype("float32"))
