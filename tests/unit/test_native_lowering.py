"""Functions to programs: order, buffers, constants, inner functions and refusals, without a library."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from relax_calls import bound, constant, function, nn, op
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.backends import onednn, openblas
from unity_collage.backends.native.lowering import NotLowerable


def program(func):
    text, blob = onednn.lower([func], ["f"])
    (made,) = json.loads(text)["programs"]
    return made, blob


def primitives(made):
    return [step["primitive"] for step in made["steps"]]


@I.ir_module
class Partitioned:
    @R.function
    def main(x: R.Tensor((1, 5, 5, 8), "float32"), w: R.Tensor((4, 8, 3, 3), "float32")):
        R.func_attr({"Codegen": "onednn", "global_symbol": "main"})

        @R.function
        def convolved(x: R.Tensor((1, 5, 5, 8), "float32"), w: R.Tensor((4, 8, 3, 3), "float32")) -> R.Tensor(
            (1, 5, 5, 4), "float32"
        ):
            R.func_attr({"Composite": "onednn.conv2d"})
            with R.dataflow():
                a = R.nn.conv2d(x, w, padding=(1, 1), data_layout="NHWC")
                b = R.nn.relu(a)
                R.output(b)
            return b

        @R.function
        def pooled(y: R.Tensor((1, 5, 5, 4), "float32")) -> R.Tensor((1, 3, 3, 4), "float32"):
            R.func_attr({"Composite": "onednn.max_pool2d"})
            with R.dataflow():
                c = R.nn.max_pool2d(y, (3, 3), layout="NHWC")
                R.output(c)
            return c

        first: R.Tensor((1, 5, 5, 4), "float32") = convolved(x, w)
        second: R.Tensor((1, 3, 3, 4), "float32") = pooled(first)
        return second


def test_inner_functions_are_written_out_in_order():
    made, _ = program(Partitioned["main"])
    assert primitives(made) == ["convolution", "pooling"]
    convolution, pooling = made["steps"]
    assert pooling["args"]["src"]["buffer"] == convolution["args"]["dst"]["buffer"]
    assert (made["inputs"], made["outputs"]) == ([0, 1], [2])
    assert pooling["args"]["dst"]["buffer"] == 2


def test_one_inner_function_called_twice():
    inner: Any = function(nn.relu, (3,))
    inner = inner.with_attr("Composite", "onednn.relu").without_attr("global_symbol")
    x, f = relax.Var("x", inner.params[0].ty), relax.Var("f", inner.ty)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_normalized(relax.VarBinding(f, inner))
        builder.emit_func_output(builder.emit(relax.Call(f, [builder.emit(relax.Call(f, [x]))])))
    made, _ = program(builder.get()["main"])
    assert primitives(made) == ["eltwise", "eltwise"]


def test_a_constant_is_stored_once_and_aligned():
    weights = np.ones((4, 4), "float32")
    made, blob = program(
        function(
            lambda x: op.matmul(
                op.matmul(op.matmul(x, constant(3, 4)), relax.const(weights)), relax.const(weights)
            ),
            (2, 3),
        )
    )
    assert [c["offset"] for c in made["constants"]] == [0, 64, 64]
    assert len(blob) == 64 + weights.nbytes
    assert np.array_equal(np.frombuffer(blob, "float32", 12), np.arange(12, dtype="float32"))


def test_temporaries_share_memory_when_their_times_differ():
    def chain(x):
        for _ in range(4):
            x = op.exp(x)
        return x

    made, _ = program(function(chain, (16,)))
    temporaries = set(range(len(made["buffers"]))) - {*made["inputs"], *made["outputs"]}
    assert len(made["steps"]) == 4
    assert len(temporaries) == 2


def test_a_step_moves_behind_what_its_addend_needs():
    made, _ = program(
        function(lambda x: op.add(op.matmul(x, constant(3, 3)), op.exp(op.exp(x))), (2, 3)),
    )
    assert primitives(made) == ["eltwise", "eltwise", "matmul"]


def test_offsets_count_bytes():
    made, _ = program(function(lambda x: nn.softmax(op.split(x, 2, axis=0)[1]), (4, 6)))
    (step,) = made["steps"]
    assert (step["args"]["src"]["buffer"], step["args"]["src"]["offset"]) == (0, 12 * 4)


def test_a_copy_is_made_once_for_all_its_readers():
    def body(x):
        turned = bound(op.permute_dims(x))
        return relax.Tuple([nn.relu(turned), op.exp(turned)])

    made, _ = program(function(body, (3, 5)))
    assert primitives(made) == ["reorder", "eltwise", "eltwise"]


def test_results_of_batch_norm_are_its_first_field():
    numbers = [constant(6)] * 4
    made, _ = program(
        function(lambda x: nn.relu(nn.batch_norm(x, *numbers, axis=1, training=False)[0]), (2, 6, 4, 4))
    )
    assert primitives(made) == ["batch_normalization"]
    assert made["steps"][0]["post_ops"][0]["algorithm"] == "relu"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x: op.sin(x), "f: relax.sin: oneDNN has no primitive for relax.sin"),
        (lambda x: relax.Tuple([x, nn.relu(x)]), "f: it returns what no operator makes"),
        (lambda x: nn.batch_norm(x, *[constant(3)] * 4, axis=0, training=False)[1], "field 1 of its result"),
    ],
)
def test_what_is_not_lowered_is_named(body, reason):
    with pytest.raises(NotLowerable, match=reason):
        onednn.lower([function(body, (3, 4))], ["f"])


def test_a_call_of_something_else_than_an_operator_is_named():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            return R.call_dps_packed("elsewhere", (x,), R.Tensor((3,), "float32"))

    with pytest.raises(NotLowerable, match="call_dps_packed"):
        onednn.lower([Module["main"]], ["f"])


def test_a_field_that_no_step_can_copy_is_named():
    func = function(lambda x: op.split(x, 2)[1], (4, 4))
    with pytest.raises(NotLowerable, match="f: a field must be copied"):
        openblas.lower([func], ["f"])
