"""The recurrent operators: TVMScript reads what it prints, TVM's kernels agree with numpy, and operands are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule

from unity_collage import operators, reference
from unity_collage.measure.inputs import random_inputs

STEPS, BATCH, HIDDEN = 4, 3, 5


def shapes(cell: str, gates: int) -> list[tuple[int, ...]]:
    last = {"lstm": [(BATCH, HIDDEN)], "gru": [(HIDDEN,)], "rnn": []}[cell]
    return [(STEPS, BATCH, gates * HIDDEN), (HIDDEN, gates * HIDDEN), (BATCH, HIDDEN), *last]


def module(make: Callable[..., relax.Call], operands: list[tuple[int, ...]], **options: Any) -> IRModule:
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


def called(cell: str, options: dict[str, Any]) -> IRModule:
    return module(getattr(operators, cell), shapes(cell, operators.CELLS[cell].gates), **options)


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
        ((2, (HIDDEN,)), "state of lstm is not a tensor of 2 axes with a static shape"),
    ],
)
def test_operands_that_do_not_fit_are_named(change: tuple[int, tuple[int, ...]], reason: str):
    operands = shapes("lstm", 4)
    operands[change[0]] = change[1]
    with pytest.raises(ValueError, match=reason):
        module(operators.lstm, operands)


def test_activations_that_are_not_there_are_named():
    with pytest.raises(ValueError, match=r"the activations of rnn are 1 of Relu, .*, not HardSigmoid"):
        module(operators.rnn, shapes("rnn", 1), activations=["HardSigmoid"])
