"""Operators without a converter: ONNX Runtime computes them, or a Python function that the user gives."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.errors import CollageError, ModelError
from unity_collage.frontend.onnx.importer import imported
from unity_collage.runtime import custom_ops
from unity_collage.sessions import RUNTIMES

needs_runtime = pytest.mark.skipif(
    RUNTIMES["onnxruntime"].why_unavailable() is not None, reason="onnxruntime is not installed"
)
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


@pytest.fixture(autouse=True)
def no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test brings its own Python functions."""
    monkeypatch.setattr(custom_ops, "_registered", {})


def _model(nodes, inputs, outputs, domains=()) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "elsewhere",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
    )
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _inverse(rows: int | str = 4) -> onnx.ModelProto:
    """``relu(inverse(x + x))``: com.microsoft.Inverse has no converter here."""
    shape = [rows, 3, 3]
    return _model(
        [
            helper.make_node("Add", ["x", "x"], ["s"]),
            helper.make_node("Inverse", ["s"], ["i"], domain="com.microsoft", name="turn"),
            helper.make_node("Relu", ["i"], ["y"]),
        ],
        [("x", FLOAT, shape)],
        [("y", FLOAT, shape)],
        ["com.microsoft"],
    )


def _matrices(rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, 3, 3), dtype=np.float32) + 3 * np.eye(
        3, dtype=np.float32
    )


@needs_runtime
def test_a_node_without_a_converter_is_computed_by_the_runtime(tmp_path) -> None:
    program = uc.compile(_inverse(), database=tmp_path / "costs.sqlite")
    x = _matrices(4)
    np.testing.assert_allclose(program(x).numpy(), np.maximum(np.linalg.inv(x + x), 0), rtol=1e-4, atol=1e-5)
    (remark,) = [line for line in program.plan["main"].remarks if "computes com.microsoft.Inverse" in line]
    assert "ONNX Runtime computes com.microsoft.Inverse 'turn': there is no converter" in remark
    path = tmp_path / "program.so"
    program.save(path)
    np.save(tmp_path / "x.npy", x)
    script = f"""
import numpy as np, unity_collage as uc
y = uc.load({str(path)!r})(np.load({str(tmp_path / "x.npy")!r})).numpy()
x = np.load({str(tmp_path / "x.npy")!r})
np.testing.assert_allclose(y, np.maximum(np.linalg.inv(x + x), 0), rtol=1e-4, atol=1e-5)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@needs_runtime
def test_its_sizes_may_be_open() -> None:
    program = uc.compile(_inverse("rows"), measure=False)
    for rows in (1, 5):
        x = _matrices(rows)
        np.testing.assert_allclose(
            program(x).numpy(), np.maximum(np.linalg.inv(x + x), 0), rtol=1e-4, atol=1e-5
        )


def test_its_results_may_depend_on_the_data() -> None:
    """A size of the result that is not known before the node has run, and operators that read it."""
    model = _model(
        [
            helper.make_node("Tokens", ["x"], ["t"], domain="of.nobody"),
            helper.make_node("Cast", ["t"], ["y"], to=FLOAT),
        ],
        [("x", FLOAT, [5])],
        [("y", FLOAT, [None])],
        ["of.nobody"],
    )
    tokens = {"of.nobody::Tokens": lambda x: np.flatnonzero(x)}
    program = uc.compile(model, custom_ops=tokens, measure=False)
    found = program(np.array([0, 2, 0, 1, 3], np.float32)).numpy()
    np.testing.assert_array_equal(found, np.array([1, 3, 4], np.float32))


def test_a_python_function_may_not_change_its_mind_about_sizes() -> None:
    model = _model(
        [helper.make_node("Odd", ["x"], ["y"], domain="of.nobody")],
        [("x", FLOAT, [4])],
        [("y", FLOAT, [4])],
        ["of.nobody"],
    )
    odd = {"of.nobody::Odd": lambda x: x if x.max() < 5 else x[:2]}
    program = uc.compile(model, custom_ops=odd, measure=False)
    np.testing.assert_array_equal(program(np.ones(4, np.float32)).numpy(), np.ones(4, np.float32))
    with pytest.raises(Exception, match="match"):
        program(np.full(4, 7, np.float32))


@needs_runtime
def test_a_model_with_a_type_that_programs_lack_is_one_call() -> None:
    """Its numbers become text and numbers again."""
    model = _model(
        [
            helper.make_node("Cast", ["x"], ["t"], to=TensorProto.STRING),
            helper.make_node("Cast", ["t"], ["y"], to=FLOAT),
        ],
        [("x", FLOAT, [3])],
        [("y", FLOAT, [3])],
    )
    program = uc.compile(model, measure=False)
    x = np.array([1, -2.5, 0], np.float32)
    np.testing.assert_array_equal(program(x).numpy(), x)
    assert any("strings are not supported" in line for line in program.plan["main"].remarks)


@needs_runtime
def test_a_model_that_reads_known_strings_is_one_call() -> None:
    words = helper.make_tensor("words", TensorProto.STRING, [3], ["2", "0.5", "7"])
    model = _model(
        [
            helper.make_node("Gather", ["words", "i"], ["t"]),
            helper.make_node("Cast", ["t"], ["y"], to=FLOAT),
        ],
        [("i", INT, [2])],
        [("y", FLOAT, [2])],
    )
    model.graph.initializer.append(words)
    with pytest.raises(ModelError, match="Gather 't': tensors of strings are not supported"):
        imported(model)
    program = uc.compile(model, measure=False)
    np.testing.assert_array_equal(program(np.array([2, 0])).numpy(), np.array([7, 2], np.float32))


@needs_runtime
def test_a_model_of_sequences_is_one_call() -> None:
    model = _model(
        [
            helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
            helper.make_node("SequenceAt", ["s", "i"], ["a"]),
            helper.make_node("Relu", ["a"], ["y"]),
        ],
        [("x", FLOAT, [4, 3]), ("i", INT, [])],
        [("y", FLOAT, [1, 3])],
    )
    program = uc.compile(model, measure=False)
    x = np.random.default_rng(0).standard_normal((4, 3), dtype=np.float32)
    np.testing.assert_array_equal(program(x, np.int64(2)).numpy(), np.maximum(x[2:3], 0))
    assert any("computes the whole model: SplitToSequence" in line for line in program.plan["main"].remarks)


@needs_runtime
def test_a_model_that_is_one_call_does_not_round_products_with_weights_of_bytes() -> None:
    """ONNX Runtime's own settings round the other operand to 8 bits too."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (256, 256), np.int8)
    scale = np.full(256, 0.01, np.float32)
    model = _model(
        [
            helper.make_node("Cast", ["b"], ["t"], to=TensorProto.STRING),
            helper.make_node("Cast", ["t"], ["c"], to=FLOAT),
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Add", ["p", "c"], ["y"]),
        ],
        [("x", FLOAT, [8, 256]), ("b", FLOAT, [1])],
        [("y", FLOAT, [8, 256])],
    )
    model.graph.initializer.extend(
        [numpy_helper.from_array(weights, "q"), numpy_helper.from_array(scale, "s")]
    )
    program = uc.compile(model, measure=False)
    x = rng.standard_normal((8, 256), dtype=np.float32)
    right = x @ (weights * scale)
    found = program(x, np.zeros(1, np.float32)).numpy()
    assert np.abs(found - right).max() < 1e-5 * np.abs(right).max()


@needs_runtime
def test_without_the_runtime_among_the_backends_a_node_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"com\.microsoft\.Inverse 'turn': there is no converter for operators of"
    ):
        uc.compile(_inverse(), backends=["tvm"])


@needs_runtime
def test_what_the_runtime_refuses_too_is_refused_with_our_reason() -> None:
    model = _model(
        [helper.make_node("Foo", ["x"], ["y"], domain="of.nobody", name="foo")],
        [("x", FLOAT, [4])],
        [("y", FLOAT, [4])],
        ["of.nobody"],
    )
    with pytest.raises(
        ModelError, match=r"of\.nobody\.Foo 'foo': there is no converter for operators of of\.nobody"
    ):
        uc.compile(model)


def _with_foo(size: int | str = 4) -> onnx.ModelProto:
    return _model(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Foo", ["r"], ["f"], domain="of.nobody", by=3.0),
            helper.make_node("Neg", ["f"], ["y"]),
        ],
        [("x", FLOAT, [size])],
        [("y", FLOAT, [size])],
        ["of.nobody"],
    )


@pytest.mark.parametrize("size", [4, "n"])
def test_a_python_function_computes_an_operator(tmp_path, size) -> None:
    def foo(x: np.ndarray, by: float) -> np.ndarray:
        return x * by + 1

    costs = {"database": tmp_path / "costs.sqlite"} if size == 4 else {"measure": False}
    program = uc.compile(_with_foo(size), custom_ops={"of.nobody::Foo": foo}, **costs)
    x = np.array([-1, 0, 1, 2], np.float32)
    np.testing.assert_array_equal(program(x).numpy(), -(np.maximum(x, 0) * 3 + 1))
    remarks = program.plan["main"].remarks
    assert any("is the Python function for of.nobody::Foo" in line for line in remarks)
    why = "programs were not compared: the Python functions for of.nobody::Foo are in this process only"
    assert (why in remarks) == (size == 4)


def test_a_process_that_loads_such_a_program_registers_the_function(tmp_path) -> None:
    path = tmp_path / "program.so"
    foo = {"of.nobody::Foo": lambda x, by: x * by + 1}
    uc.compile(_with_foo(), custom_ops=foo, measure=False).save(path)
    script = f"""
import numpy as np, unity_collage as uc
x = np.array([-1, 0, 1, 2], np.float32)
program = uc.load({str(path)!r})
try:
    program(x)
except uc.CollageError as error:
    assert "Cannot find function unity_collage.custom.of.nobody::Foo: call unity_collage.regis" in str(error)
uc.register_custom_ops({{"of.nobody::Foo": lambda x, by: x * by + 1}})
np.testing.assert_array_equal(uc.load({str(path)!r})(x).numpy(), -(np.maximum(x, 0) * 3 + 1))
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_function_may_return_its_operand_and_may_not_change_it() -> None:
    """The memory of an operand is used again by the next kernels."""
    graph = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Same", ["e"], ["s"], domain="of.nobody"),
        helper.make_node("MatMul", ["x", "x"], ["a"]),
        helper.make_node("MatMul", ["a", "x"], ["b"]),
        helper.make_node("Sub", ["s", "b"], ["y"]),
    ]
    model = _model(graph, [("x", FLOAT, [64, 64])], [("y", FLOAT, [64, 64])], ["of.nobody"])
    same = {"of.nobody::Same": lambda e: e}
    program = uc.compile(model, custom_ops=same, measure=False)
    x = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    np.testing.assert_allclose(program(x).numpy(), np.exp(x) - x @ x @ x, rtol=1e-3, atol=1e-2)

    def changing(e: np.ndarray) -> np.ndarray:
        e += 1
        return e

    other = {"of.nobody::Same": changing}
    uc.register_custom_ops(other)
    with pytest.raises(ModelError, match=r"fails for zeros and ones: .*read-only"):
        uc.compile(model, custom_ops=other, measure=False)


def test_one_name_is_one_function_in_a_process() -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    first = {"of.nobody::Foo": lambda x, by: x * by}
    program = uc.compile(_with_foo(), custom_ops=first, measure=False)
    other = {"of.nobody::Foo": lambda x, by: x + by}
    with pytest.raises(
        ModelError, match=r"programs of this process call another Python function for of\.nobody::Foo"
    ):
        uc.compile(_with_foo(), custom_ops=other, measure=False)
    np.testing.assert_array_equal(program(x).numpy(), -3 * x)
    uc.register_custom_ops(other)
    again = uc.compile(_with_foo(), custom_ops=other, measure=False)
    np.testing.assert_array_equal(again(x).numpy(), -(x + 3))


@needs_runtime
def test_samples_are_told_to_have_no_plans_of_their_own() -> None:
    program = uc.compile(_inverse("rows"), shapes={"rows": [2, 8]}, measure=False)
    assert any("one plan for all sizes" in line for line in program.plan["main"].remarks)
    x = _matrices(3)
    np.testing.assert_allclose(program(x).numpy(), np.maximum(np.linalg.inv(x + x), 0), rtol=1e-4, atol=1e-5)


def test_a_python_function_that_fails_is_a_reason() -> None:
    def foo(x: np.ndarray, by: float) -> np.ndarray:
        raise ValueError(f"not by {by}")

    with pytest.raises(CollageError, match=r"its Python function fails for zeros and ones: not by 3\.0"):
        uc.compile(_with_foo(), custom_ops={"of.nobody::Foo": foo}, backends=["tvm"])


def test_a_saved_program_says_which_functions_it_needs(tmp_path, capsys) -> None:
    foo = {"of.nobody::Foo": lambda x, by: x * by + 1}
    program = uc.compile(_with_foo(), custom_ops=foo, measure=False)
    program.save(tmp_path / "program.so")
    assert cli.main(["info", str(tmp_path / "program.so")]) == 0
    assert "functions for of.nobody::Foo" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(CollageError, match=r"this program calls Python functions: of\.nobody::Foo"):
        program.save(tmp_path / "bundle", bundle=True)


def test_a_function_gets_the_constants_of_the_model() -> None:
    """With zeros in their place it could not be called."""
    model = _model(
        [
            helper.make_node("Constant", [], ["k"], value_int=2),
            helper.make_node("Rows", ["x", "k"], ["y"], domain="of.nobody"),
        ],
        [("x", FLOAT, [6])],
        [("y", FLOAT, [2])],
        ["of.nobody"],
    )
    rows = {"of.nobody::Rows": lambda x, k: x.reshape(int(k), -1).sum(1)}
    program = uc.compile(model, custom_ops=rows, measure=False)
    np.testing.assert_array_equal(program(np.arange(6, dtype=np.float32)).numpy(), [3, 12])


def test_a_function_takes_and_returns_bfloat16() -> None:
    model = _model(
        [helper.make_node("Twice", ["x"], ["y"], domain="of.nobody")],
        [("x", TensorProto.BFLOAT16, [2, 3])],
        [("y", TensorProto.BFLOAT16, [2, 3])],
        ["of.nobody"],
    )
    program = uc.compile(model, custom_ops={"of.nobody::Twice": lambda x: x + x}, measure=False)
    x = np.arange(6).reshape(2, 3).astype("bfloat16")
    found = program(x).numpy()
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x + x)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, by: [x, x], ""),  # more than the node asks for
        (lambda x, by: [], "returns 0 arrays for zeros and 0 for ones, and 1 are asked for"),
        (lambda x, by: [x] * (1 + int(x.max())), "returns 1 arrays for zeros and 2 for ones"),
        (lambda x, by: x.astype(complex), "returns an array of complex128"),
    ],
)
def test_what_a_function_returns_is_checked(function, reason: str) -> None:
    custom = {"of.nobody::Foo": function}
    if not reason:
        x = np.array([-1, 2, 0, 1], np.float32)
        program = uc.compile(_with_foo(), custom_ops=custom, measure=False)
        np.testing.assert_array_equal(program(x).numpy(), -np.maximum(x, 0))
        return
    with pytest.raises(ModelError, match=reason):
        uc.compile(_with_foo(), custom_ops=custom, measure=False)
