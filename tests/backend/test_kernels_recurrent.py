"""Our recurrent layers, with every instruction set of this machine, against the operators in numpy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from compiled import arrays, backends_of, compiled
from native_program import Program, create, random, run
from test_kernels_winograd import ISAS
from test_native_sizes import resident_mib
from tvm import relax, tirx

from unity_collage import num_threads, operators, reference, runtime, set_num_threads
from unity_collage.backends.kernels import lower
from unity_collage.backends.kernels.recurrent import recurrent
from unity_collage.graph.variants import LIKE
from unity_collage.testing.fixed_cost import FixedCost

if reason := runtime.why_unavailable("kernels"):
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


def layer(cell: str, steps: Any, batch: Any, hidden: int, **options: Any) -> relax.Function:
    """A function of all operands but the weights, which are drawn."""
    gates = operators.CELLS[cell].gates
    weights = relax.const(random(hidden, gates * hidden) / np.float32(np.sqrt(hidden)))
    last = {"lstm": [(batch, hidden)], "gru": [(hidden,)], "rnn": []}[cell]
    operands = [(steps, batch, gates * hidden), (batch, hidden), *last]
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(operands)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            call = getattr(operators, cell)(params[0], weights, *params[1:], **options)
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()["main"].with_attr("Composite", "kernels.recurrent")


def inputs_of(func: relax.Function) -> list[np.ndarray]:
    sizes = [[int(extent) for extent in param.ty.shape.values] for param in func.params]
    return [random(*size, seed=seed) / 2 for seed, size in enumerate(sizes)]


def module_of(func: relax.Function, isa: str) -> tvm_ffi.Module:
    text, blob = lower([func], ["main"])
    programs = json.loads(text)
    programs["programs"][0]["steps"][0]["attrs"]["isa"] = isa
    return create("kernels", programs, blob)


def assert_agrees(func: relax.Function, isa: str) -> None:
    module = module_of(func, isa)
    inputs = inputs_of(func)
    (expected,) = reference.run(func, inputs)
    for _ in range(2):  # the second call finds what the first has left in its scratch
        np.testing.assert_allclose(run(module, *inputs, out=expected.shape), expected, atol=2e-6)


CELLS: list[tuple[str, dict[str, Any]]] = [
    ("lstm", {}),
    ("lstm", {"keeps_memory": True, "reverse": True}),
    ("gru", {"resets_first": True}),
    ("gru", {"resets_first": False, "reverse": True}),
    ("rnn", {}),
    ("rnn", {"activations": ["Relu"], "reverse": True}),
    ("rnn", {"activations": ["Softsign"]}),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("cell", "options"), CELLS)
@pytest.mark.parametrize("size", [(1, 1, 1), (5, 1, 7), (4, 7, 33)], ids=str)
def test_sizes_of_any_kind_agree_with_numpy(
    size: tuple[int, int, int], cell: str, options: dict[str, Any], isa: str
):
    assert_agrees(layer(cell, *size, **options), isa)


@pytest.mark.parametrize(("cell", "options"), CELLS)
@pytest.mark.parametrize("size", [(6, 1, 264), (3, 10, 96)], ids=["units", "rows"])
def test_shared_by_threads_it_agrees_with_numpy(
    size: tuple[int, int, int], cell: str, options: dict[str, Any], threads: int
):
    assert_agrees(layer(cell, *size, **options), ISAS[0])


def test_a_sequence_that_is_saturated_stays_finite():
    func = layer("lstm", 3, 2, 40)
    inputs = [np.where(x > 0, 1e30, -1e30).astype("float32") for x in inputs_of(func)]
    (expected,) = reference.run(func, inputs)
    np.testing.assert_allclose(
        run(module_of(func, ISAS[0]), *inputs, out=expected.shape), expected, atol=2e-6
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_nan_of_any_bits_in_a_gate_stays_nan(bits: int, isa: str):
    func = layer("gru", 1, 1, 8)
    inputs = inputs_of(func)
    inputs[0].view("uint32")[0, 0, 2:4] = bits  # two numbers of the update gate
    got = run(module_of(func, isa), *inputs, out=(1, 1, 8))[0, 0]
    np.testing.assert_array_equal(np.isnan(got), np.isin(np.arange(8), (2, 3)))


@pytest.mark.parametrize("result", [(2, 1, 4), ()], ids=["of another cell", "of one number"])
def test_tensors_that_do_not_fit_are_refused_when_the_module_is_made(result: tuple[int, ...]):
    program = Program()
    args = {
        "src": program.input(2, 1, 16),
        "state": program.input(1, 3),
        "memory": program.input(1, 4),
        "dst": program.output(*result),
        "weights": program.constant(random(4, 16)),
    }
    program.step("recurrent", args, cell="lstm", f="sigmoid", g="tanh", h="tanh", reverse=0)
    with pytest.raises(ValueError, match="are not those of a sequence of lstm cells"):
        program.create("kernels")


@pytest.mark.parametrize(("cell", "options"), CELLS)
def test_one_module_takes_any_number_of_steps_and_sequences(cell: str, options: dict[str, Any]):
    module = module_of(layer(cell, tirx.Var("t", "int64"), tirx.Var("n", "int64"), 33, **options), ISAS[0])
    for steps, batch in [*product((0, 1, 2, 33), (1, 2, 3)), (2, 0), (33, 2)]:
        fixed = layer(cell, steps, batch, 33, **options)
        inputs = inputs_of(fixed)
        (expected,) = reference.run(fixed, inputs)
        np.testing.assert_allclose(run(module, *inputs, out=expected.shape), expected, atol=2e-6)


def test_sizes_share_their_packed_weights():
    """Weights of 512 hidden units are 4 MiB: forty copies of them would be seen."""
    module = module_of(layer("lstm", tirx.Var("t", "int64"), 1, 512), ISAS[0])
    before = 0.0
    for steps in range(1, 42):
        run(module, random(steps, 1, 2048), random(1, 512), random(1, 512), out=(steps, 1, 512))
        before = before or resident_mib()
    assert resident_mib() - before < 80


def test_another_batch_of_the_state_is_refused_with_a_reason():
    operands = [relax.TensorType((3, tirx.Var("m", "int64"), 8), "float32"),
                relax.TensorType((tirx.Var("n", "int64"), 8), "float32")]  # fmt: skip
    x, state = (relax.Var(f"x{i}", ty) for i, ty in enumerate(operands))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, state]):
        call = builder.emit(operators.rnn(x, relax.const(random(8, 8)), state))
        builder.emit_func_output(call)
    step = recurrent(builder.get()["main"].body.blocks[0].bindings[0].value)
    assert step == "it depends on the sizes whether the batch of state, n, is that of the inputs, m"


def test_a_program_takes_the_kernel():
    func = layer("gru", 5, 1, 32, resets_first=False).without_attr("Composite")
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    program = compiled(mod, ["kernels", "tvm"], FixedCost({"kernels": 1e-6, "tvm": 2e-6}))
    assert backends_of(program) == {"kernels"}
    inputs = inputs_of(func)
    (expected,) = reference.run(func, inputs)
    np.testing.assert_allclose(arrays(program(*inputs)), expected, atol=2e-6)


def test_a_program_takes_the_kernel_for_all_sizes():
    sizes = tirx.Var("t", "int64"), tirx.Var("n", "int64")
    func = layer("lstm", *sizes, 32, keeps_memory=True).without_attr("Composite")
    like = {"t": 8, "n": 1}
    mod = tvm.IRModule({"main": func.with_attrs({"global_symbol": "main", LIKE: like})})
    program = compiled(mod, ["kernels", "tvm"], FixedCost({"kernels": 1e-6, "tvm": 2e-6}))
    assert backends_of(program) == {"kernels"}
    for steps, batch in ((0, 2), (1, 1), (33, 3)):
        fixed = layer("lstm", steps, batch, 32, keeps_memory=True)
        inputs = inputs_of(fixed)
        (expected,) = reference.run(fixed, inputs)
        np.testing.assert_allclose(arrays(program(*inputs)), expected, atol=2e-6)
