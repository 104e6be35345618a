"""LSTM, GRU and RNN of ONNX models: the numbers of ONNX Runtime, and the form that libraries take where it fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_case import by_onnxruntime, by_reference, check, one_node, prepared, run
from tvm import relax

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.importer import imported
from unity_collage.graph.calls import operators

STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 3, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
WEIGHTS = ["w", "r", "b", "p"]
_NAMES = ["x", "w", "r", "b", "lengths", "h0", "c0", "p"]


def cell(
    op: str,
    *more: str,
    opset: int = 17,
    dims: list[int | str] | dict[str, Any] | None = None,
    constant: bool = True,
    dtype: str = "float32",
    steps: int = STEPS,
    lengths: tuple[int, ...] = (5, 3),
    **options: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node with weights drawn, and its inputs; ``more`` names operands besides x, w and r."""
    random = np.random.default_rng(7)
    directions = 2 if options.get("direction") == "bidirectional" else 1
    rows, batch_first = GATES[op] * HIDDEN, options.get("layout", 0)
    state = [BATCH, directions, HIDDEN] if batch_first else [directions, BATCH, HIDDEN]
    shapes = {
        "x": [BATCH, steps, INPUTS] if batch_first else [steps, BATCH, INPUTS],
        "w": [directions, rows, INPUTS],
        "r": [directions, rows, HIDDEN],
        "b": [directions, 2 * rows],
        "h0": state,
        "c0": state,
        "p": [directions, 3 * HIDDEN],
    }
    arrays = {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    arrays["lengths"] = np.array(lengths, "int32")
    given = {name: arrays[name] if name in ("x", "w", "r", *more) else None for name in _NAMES}
    while list(given.values())[-1] is None:
        given.popitem()
    weights = [name for name in WEIGHTS if given.get(name) is not None] if constant else []
    outputs = 3 if op == "LSTM" else 2
    named = dims if isinstance(dims, dict) else {"x": dims} if dims else None
    model = one_node(
        op, given, outputs, opset=opset, constant=weights, dims=named,
        hidden_size=HIDDEN, **options,
    )  # fmt: skip
    return model, {name: array for name, array in given.items() if array is not None}


def called(model: onnx.ModelProto) -> set[str]:
    """The operators of our own that the imported model calls."""
    return {name for name in operators(imported(model)[0]["main"]) if name.startswith("relax.collage.")}


COMMON: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "lstm": ("LSTM", ["b"], {}),
    "lstm from a state": ("LSTM", ["b", "h0", "c0"], {}),
    "lstm in both directions": ("LSTM", ["b", "h0", "c0"], {"direction": "bidirectional"}),
    "lstm backwards": ("LSTM", ["b"], {"direction": "reverse"}),
    "lstm without a bias": ("LSTM", [], {}),
    "lstm of other functions": ("LSTM", ["b"], {"activations": ["Sigmoid", "Relu", "Softsign"]}),
    "gru": ("GRU", ["b"], {}),
    "gru that resets behind its product": ("GRU", ["b"], {"linear_before_reset": 1}),
    "gru in both directions": ("GRU", ["b"], {"direction": "bidirectional", "linear_before_reset": 1}),
    "rnn": ("RNN", ["b"], {}),
    "rnn of relu in both directions": (
        "RNN",
        ["b", "h0"],
        {"direction": "bidirectional", "activations": ["Relu", "Tanh"]},
    ),
}


@pytest.mark.parametrize(("op", "more", "options"), COMMON.values(), ids=COMMON)
def test_common_layers_are_what_libraries_take(op: str, more: list[str], options: dict[str, Any]):
    model, feeds = cell(op, *more, **options)
    assert called(model) == {f"relax.collage.{op.lower()}"}
    check(model, feeds)


GENERAL: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "lengths": ("LSTM", ["b", "lengths", "h0", "c0"], {}),
    "lengths backwards": ("LSTM", ["b", "lengths"], {"direction": "reverse"}),
    "lengths in both directions": ("GRU", ["b", "lengths", "h0"], {"direction": "bidirectional"}),
    "lengths of an rnn": ("RNN", ["b", "lengths"], {"direction": "bidirectional"}),
    "peepholes": ("LSTM", ["b", "p"], {}),
    "peepholes in both directions": ("LSTM", ["b", "p", "c0", "h0"], {"direction": "bidirectional"}),
    "clip": ("LSTM", ["b"], {"clip": 0.6}),
    "clip of a gru": ("GRU", ["b"], {"clip": 0.4}),
    "clip of a gru that resets behind": ("GRU", ["b"], {"clip": 0.4, "linear_before_reset": 1}),
    "clip of an rnn": ("RNN", ["b"], {"clip": 0.4}),
    "coupled gates": ("LSTM", ["b"], {"input_forget": 1}),
    "functions with numbers": (
        "LSTM",
        ["b"],
        {"activations": ["HardSigmoid", "ScaledTanh", "Affine"], "activation_alpha": [0.3, 0.9, 1.5],
         "activation_beta": [0.4, 0.8, 0.1]},
    ),
    "functions with default numbers": ("RNN", ["b"], {"activations": ["HardSigmoid"]}),
    "functions that grow": ("GRU", ["b"], {"activations": ["Sigmoid", "Softplus"]}),
    "leaky": ("RNN", ["b"], {"activations": ["LeakyRelu"], "activation_alpha": [0.2]}),
    "functions with thresholds": (
        "RNN",
        ["b"],
        {"direction": "bidirectional", "activations": ["Elu", "ThresholdedRelu"], "activation_alpha": [0.5, 0.3]},
    ),
    "scaled": ("RNN", ["b"], {"activations": ["ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [2.0]}),
}  # fmt: skip


@pytest.mark.parametrize(("op", "more", "options"), GENERAL.values(), ids=GENERAL)
def test_all_options_become_the_general_operator(op: str, more: list[str], options: dict[str, Any]):
    model, feeds = cell(op, *more, **options)
    assert called(model) == {"relax.collage.recurrent"}
    check(model, feeds)


@pytest.mark.parametrize("dims", [["t", BATCH, INPUTS], [STEPS, "n", INPUTS], ["t", "n", INPUTS]])
@pytest.mark.parametrize("op", GATES)
def test_steps_and_batch_may_be_unknown(op: str, dims: list[int | str]):
    model, feeds = cell(op, "b", dims=dims, direction="bidirectional")
    check(model, feeds)


FREE: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "lstm from a state": ("LSTM", ["b", "h0", "c0"], {}),
    "lstm backwards": ("LSTM", ["b"], {"direction": "reverse"}),
    "lstm in both directions": ("LSTM", ["b", "h0", "c0"], {"direction": "bidirectional"}),
    "gru in both directions": ("GRU", ["b", "h0"], {"direction": "bidirectional", "linear_before_reset": 1}),
    "rnn": ("RNN", [], {}),
    "lstm with lengths": ("LSTM", ["b", "lengths"], {}),
}


@pytest.mark.parametrize(("op", "more", "options"), FREE.values(), ids=FREE)
def test_one_program_runs_any_number_of_steps_and_sequences(
    op: str, more: list[str], options: dict[str, Any]
):
    free = {"x": ["t", "n", INPUTS], "lengths": ["n"]}
    directions = 2 if options.get("direction") == "bidirectional" else 1
    free |= {name: [directions, "n", HIDDEN] for name in ("h0", "c0")}
    general = "lengths" in more
    model, feeds = cell(op, *more, dims=free, **options)
    assert called(model) == {"relax.collage.recurrent" if general else f"relax.collage.{op.lower()}"}
    call = prepared(model)
    names = [info.name for info in model.graph.input]
    for steps in (1, 2, 33) if general else (0, 1, 2, 33):
        for batch in (1, 2, 3):
            given = {name: sized(feeds[name], name, steps, batch) for name in names}
            if steps:
                expected = by_onnxruntime(model, given)
            else:  # where ONNX Runtime fails
                last = [
                    given.get(name, np.zeros([*free["h0"][:1], batch, HIDDEN], "float32"))
                    for name in ("h0", "c0")
                ]
                expected = [np.zeros([0, last[0].shape[0], batch, HIDDEN]), *last][: len(model.graph.output)]
            for got, wanted in zip(call(given), expected, strict=True):
                assert got.shape == wanted.shape
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def sized(array: np.ndarray, name: str, steps: int, batch: int) -> np.ndarray:
    """Numbers like those of ``array``, of another number of steps and sequences."""
    if name == "lengths":
        return np.array([steps, steps // 2, 1][:batch], "int32")
    shape = (steps if name == "x" else array.shape[0], batch, array.shape[2])
    return np.resize(array, shape)


def test_an_initial_state_may_call_its_batch_otherwise():
    free: dict[str, Any] = {"x": ["t", "n", INPUTS], "h0": [1, "m", HIDDEN]}
    model, feeds = cell("GRU", "b", "h0", dims=free)
    assert called(model) == {"relax.collage.gru"}
    call, given = prepared(model), {name: feeds[name] for name in ("x", "h0")}
    for got, wanted in zip(call(given), by_onnxruntime(model, given), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(Exception, match=r"[Mm]atch"):
        call({**given, "h0": given["h0"][:, :1]})


@pytest.mark.parametrize("op", GATES)
def test_weights_may_be_inputs(op: str):
    model, feeds = cell(op, "b", constant=False, direction="bidirectional")
    check(model, feeds)


@pytest.mark.parametrize("op", GATES)
def test_the_batch_may_come_first(op: str):
    # ONNX Runtime does not have this.
    model, feeds = cell(op, "b", "h0", *(["c0"] if op == "LSTM" else []), layout=1)
    turned, _ = cell(op, "b", "h0", *(["c0"] if op == "LSTM" else []))
    states = {name: feeds[name].swapaxes(0, 1) for name in ("x", "h0", "c0") if name in feeds}
    y, *last = run(turned, {**feeds, **states})
    check(model, feeds, want=[y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in last)])


def test_no_steps_leave_the_initial_state():
    model, feeds = cell("LSTM", "b", "h0", "c0", steps=0)
    y, h, c = run(model, feeds)
    assert y.shape == (0, 1, BATCH, HIDDEN)
    np.testing.assert_array_equal([h, c], [feeds["h0"], feeds["c0"]])


def test_no_sequences_have_no_states():
    given = {"x": (STEPS, 0, INPUTS), "w": (1, 4 * HIDDEN, INPUTS), "r": (1, 4 * HIDDEN, HIDDEN)}
    feeds = {name: np.zeros(shape, "float32") for name, shape in given.items()}
    mod, _, _ = imported(one_node("LSTM", feeds, 3, hidden_size=HIDDEN))
    found = [tuple(map(int, field.shape.values)) for field in mod["main"].ret_ty.fields]
    assert found == [(STEPS, 1, 0, HIDDEN), (1, 0, HIDDEN), (1, 0, HIDDEN)]


def test_float16_is_computed_in_float32_and_rounded_once():
    model, feeds = cell("LSTM", dtype="float16")
    wide, _ = cell("LSTM")
    names = [tensor.name for tensor in wide.graph.initializer]
    for name, tensor in zip(names, wide.graph.initializer, strict=True):
        tensor.CopyFrom(onnx.numpy_helper.from_array(feeds[name].astype("float32"), name))
    want = [array.astype("float16") for array in run(wide, {"x": feeds["x"].astype("float32")})]
    assert {str(field.dtype) for field in imported(model)[0]["main"].ret_ty.fields} == {"float16"}
    check(model, feeds, want=want, rtol=1e-3)


def test_inputs_of_all_steps_meet_their_weights_in_one_product():
    main = imported(cell("LSTM", "b")[0])[0]["main"]
    products = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.matmul":
            products.append(expr)

    relax.analysis.post_order_visit(main, visit)
    assert len(products) == 1 and products[0].args[0].same_as(main.params[0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"activations": ["Sine", "Tanh", "Tanh"]}, "its activation 'Sine' is not one of Affine, Elu"),
        ({"activations": ["Tanh"]}, "it has 1 activations, and 1 directions take 3 each"),
        ({"dims": [4, "batch"]}, "its input has 2 dimensions, not 3"),
    ],
)
def test_what_is_no_layer_is_refused(options: dict[str, Any], reason: str):
    with pytest.raises(ModelError, match=f"^LSTM 'node': {reason}"):
        imported(cell("LSTM", **options)[0])


def test_the_reference_agrees_with_empty_operands_between():
    model, feeds = cell("LSTM", "b", "p")
    check(model, feeds, want=[*by_reference(model, feeds)][:3], rtol=1e-4)
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_weights_are_widened(per_channel: bool):
    random, rows = np.random.default_rng(0), 4 * HIDDEN
    numbers = {
        "w": random.integers(-99, 99, [1, INPUTS, rows]),
        "r": random.integers(-99, 99, [1, HIDDEN, rows]),
    }
    shape = [1, rows] if per_channel else [1]
    scales = {name: random.uniform(0.01, 0.02, shape).astype("float32") for name in numbers}
    points = {name: random.integers(-3, 3, shape) for name in numbers}
    plain, feeds = cell("LSTM", "b")
    for tensor in plain.graph.initializer:
        if tensor.name in numbers:
            name = tensor.name
            wide = (numbers[name][0] - points[name][0]) * scales[name][0]
            array = np.ascontiguousarray(wide.T[None].astype("float32"))
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, name))
    operands = {
        "x": feeds["x"], **{name: array.astype("int8") for name, array in numbers.items()}, "b": feeds["b"],
        "lengths": None, "h0": None, "c0": None, "p": None,
        "ws": scales["w"], "wz": points["w"].astype("int8"), "rs": scales["r"], "rz": points["r"].astype("int8"),
    }  # fmt: skip
    known = [name for name, array in operands.items() if array is not None and name != "x"]
    model = one_node(
        "DynamicQuantizeLSTM", operands, 3, domain="com.microsoft", constant=known, hidden_size=HIDDEN
    )
    check(model, {"x": feeds["x"]}, want=run(plain, {"x": feeds["x"]}))
