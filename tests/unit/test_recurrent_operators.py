"""The recurrent operators: TVMScript reads what it prints, TVM's kernels agree with numpy, and operands are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import IRModule

from unity_collage import operators, reference
from unity_collage.measure.inputs import random_inputs
from unity_collage.operators.any_recurrent import DEFAULTS, OPERANDS, Options, recurrent

STEPS, BATCH, HIDDEN = 4, 3, 5


Shape = tuple[Any, ...]


def shapes(cell: str, gates: int, steps: Any = STEPS, batch: Any = BATCH) -> list[Shape]:
    last = {"lstm": [(batch, HIDDEN)], "gru": [(HIDDEN,)], "rnn": []}[cell]
    return [(steps, batch, gates * HIDDEN), (HIDDEN, gates * HIDDEN), (batch, HIDDEN), *last]


def module(make: Callable[..., relax.Call], operands: list[Shape], **options: Any) -> IRModule:
    params = [
        relax.Var(f"x{number}", relax.TensorType(shape, "float32")) for number, shape in enumerate(operands)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(make(*params, **options))
        builder.emit_func_output(result)
    return builder.get()


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("lstm", {}),
    ("lstm", {"keeps_memory": True, "activations": ["Sigmoid", "Relu", "Softsign"]}),
    ("lstm", {"reverse": True, "keeps_memory": True}),
    ("gru", {}),
    ("gru", {"resets_first": False, "reverse": True}),
    ("rnn", {"reverse": True}),
    ("rnn", {"activations": ["Relu"]}),
]


def called(cell: str, options: dict[str, Any], *sizes: Any) -> IRModule:
    return module(getattr(operators, cell), shapes(cell, operators.CELLS[cell].gates, *sizes), **options)


@pytest.mark.parametrize(("cell", "options"), CALLS)
def test_script_is_read_as_it_was_printed(cell: str, options: dict[str, Any]):
    mod = called(cell, options)
    assert f"R.collage.{cell}(" in mod.script()
    tvm.ir.assert_structural_equal(tvm.script.from_source(mod.script()), mod)


@pytest.mark.parametrize(("cell", "options"), CALLS)
def test_the_kernel_of_tvm_agrees_with_numpy(cell: str, options: dict[str, Any]):
    mod = called(cell, options)
    inputs = random_inputs(mod["main"])
    vm = relax.VirtualMachine(tvm.compile(relax.transform.LegalizeOps()(mod), target="llvm"), tvm.cpu())
    got = vm["main"](*map(tvm.runtime.tensor, inputs)).numpy()
    (expected,) = reference.run(mod["main"], inputs, mod)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("cell", "options"), CALLS)
def test_steps_and_batch_may_be_symbolic(cell: str, options: dict[str, Any]):
    mod = called(cell, options, tirx.Var("t", "int64"), tirx.Var("n", "int64"))
    tvm.ir.assert_structural_equal(tvm.script.from_source(mod.script()), mod)
    vm = relax.VirtualMachine(tvm.compile(relax.transform.LegalizeOps()(mod), target="llvm"), tvm.cpu())
    for steps, batch in ((0, 2), (1, 1), (2, 3), (33, 1), (3, 0)):
        inputs = random_inputs(called(cell, options, steps, batch)["main"])
        (expected,) = reference.run(mod["main"], inputs, mod)
        got = vm["main"](*map(tvm.runtime.tensor, inputs)).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)


def test_another_batch_of_the_state_is_an_error_when_the_program_runs():
    operands = shapes("rnn", 1, STEPS, tirx.Var("n", "int64"))
    operands[2] = (tirx.Var("m", "int64"), HIDDEN)
    mod = module(operators.rnn, operands)
    vm = relax.VirtualMachine(tvm.compile(relax.transform.LegalizeOps()(mod), target="llvm"), tvm.cpu())
    inputs = [tvm.runtime.tensor(np.zeros(shape, "float32")) for shape in shapes("rnn", 1)]
    assert vm["main"](*inputs).shape == (STEPS, BATCH, HIDDEN)
    with pytest.raises(Exception, match="shape"):
        vm["main"](*inputs[:2], tvm.runtime.tensor(np.zeros((1, HIDDEN), "float32")))


def test_random_weights_make_no_chaos():
    """A sequence whose first state is off by a rounding error ends where it would have ended."""
    mod = module(operators.lstm, [(64, 1, 4 * 256), (256, 4 * 256), (1, 256), (1, 256)])
    inputs = random_inputs(mod["main"])
    (expected,) = reference.run(mod["main"], inputs, mod)
    inputs[2] = inputs[2] * np.float32(1 + 1e-6)
    (got,) = reference.run(mod["main"], inputs, mod)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((0, (STEPS, BATCH, 4 * HIDDEN + 1)), "inputs of lstm is .*, with 4 steps it should be"),
        ((1, (HIDDEN, HIDDEN)), "weights of lstm is"),
        ((3, (1, HIDDEN)), "memory of lstm is"),
        ((2, (HIDDEN,)), "state of lstm is not a tensor of 2 axes with a known shape"),
        (
            (2, (BATCH, tirx.Var("h", "int64"))),
            "state of lstm is .*, but the number of hidden units is static",
        ),
        (
            (0, (tirx.Var("t", "int64"), BATCH + 1, 4 * HIDDEN)),
            "state of lstm is .*, with t steps it should be",
        ),
    ],
)
def test_operands_that_do_not_fit_are_named(change: tuple[int, Shape], reason: str):
    operands = shapes("lstm", 4)
    operands[change[0]] = change[1]
    with pytest.raises(ValueError, match=reason):
        module(operators.lstm, operands)


def test_activations_that_are_not_there_are_named():
    with pytest.raises(ValueError, match=r"the activations of rnn are 1 of Relu, .*, not HardSigmoid"):
        module(operators.rnn, shapes("rnn", 1), activations=["HardSigmoid"])


ANY: dict[str, dict[str, Any]] = {
    "lstm": {"cell": "lstm", "activations": ["Sigmoid", "Tanh", "ScaledTanh"], "has_lengths": True},
    "lstm with peepholes": {
        "cell": "lstm",
        "activations": ["HardSigmoid", "Tanh", "Elu"],
        "has_peepholes": True,
    },
    "coupled lstm": {
        "cell": "lstm",
        "activations": ["Sigmoid", "Tanh", "Tanh"],
        "coupled": True,
        "clip": 0.5,
    },
    "gru": {
        "cell": "gru",
        "activations": ["Sigmoid", "Affine"],
        "reverse": True,
        "has_lengths": True,
        "clip": 0.5,
    },
    "gru that resets behind": {"cell": "gru", "activations": ["Sigmoid", "Softplus"], "resets_first": False},
    "rnn": {"cell": "rnn", "activations": ["LeakyRelu"], "reverse": True},
}


def any_layer(steps: Any, batch: Any, options: dict[str, Any]) -> IRModule:
    gates = operators.CELLS[options["cell"]].gates
    numbers = [DEFAULTS.get(name, (0, 0)) for name in options["activations"]]
    shapes = [
        [steps, batch, gates * HIDDEN],
        [HIDDEN, gates * HIDDEN],
        *[[batch, HIDDEN]] * 2,
        [HIDDEN],
        [3 * HIDDEN],
    ]
    params = [relax.Var(f"x{n}", relax.TensorType(shape, "float32")) for n, shape in enumerate(shapes)]
    params.append(relax.Var("lengths", relax.TensorType([batch], "int32")))
    made = recurrent(
        dict(zip(OPERANDS, params, strict=True)),
        Options(alphas=[a for a, _ in numbers], betas=[b for _, b in numbers], **options),
    )
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("options", ANY.values(), ids=ANY)
def test_the_general_kernel_agrees_with_numpy_for_any_sizes(options: dict[str, Any]):
    mod = any_layer(tirx.Var("t", "int64"), tirx.Var("n", "int64"), options)
    tvm.ir.assert_structural_equal(tvm.script.from_source(mod.script()), mod)
    operands = random_inputs(any_layer(STEPS, BATCH, options)["main"])
    operands[-1] = np.array([3, 0, 9], "int32")
    expected = reference.run(mod["main"], operands, mod)
    vm = relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())
    found = vm["main"](*map(tvm.runtime.tensor, operands))
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_the_general_operator_refuses_unknown_activations():
    with pytest.raises(ValueError, match="the activations Sine are not those of rnn"):
        any_layer(STEPS, BATCH, {"cell": "rnn", "activations": ["Sine"]})
