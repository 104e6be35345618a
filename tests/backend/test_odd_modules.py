"""Modules that are more than a plain network: TVM keeps what no library takes, and all results are right."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from compiled import arrays, backends_of, compiled, random
from onnx import TensorProto, helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

W = relax.const(random(16, 16, seed=1))
WEIGHTS = W.value.numpy()
X = random(4, 16)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def close(got: object, right: np.ndarray) -> None:
    np.testing.assert_allclose(arrays(got), right, rtol=1e-4, atol=1e-5)


def test_symbolic_rows() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
            with R.dataflow():
                a = R.matmul(x, W)
                b = R.nn.relu(a)
                R.output(b)
            return b

    program = compiled(Model)
    for rows in (1, 7):
        close(program(random(rows, 16)), relu(random(rows, 16) @ WEIGHTS))


def test_a_convolution_of_symbolic_batch() -> None:
    weights = relax.const(random(4, 3, 3, 3, seed=1))

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor(("n", 3, 8, 8), "float32")) -> R.Tensor(("n", 4, 4, 4), "float32"):
            with R.dataflow():
                a = R.nn.conv2d(x, weights, padding=(1, 1))
                b = R.nn.max_pool2d(R.nn.relu(a), (2, 2), strides=(2, 2))
                R.output(b)
            return b

    fixed = relax.transform.BindSymbolicVars({"n": 3})(Model)
    image = random(3, 3, 8, 8)
    close(compiled(Model)(image), arrays(compiled(fixed, ["onednn"])(image)))


def test_branches_with_work_before_in_and_behind_them() -> None:
    """TVM's memory planner lets one branch use what only the other allocates: the program would crash."""

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((4, 16), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4, 16), "float32"):
            with R.dataflow():
                a = R.nn.relu(R.matmul(x, W))
                R.output(a)
            if c:
                b = R.exp(R.nn.relu(R.negative(a)))
                y = b
            else:
                b = R.negative(R.tanh(R.matmul(a, W)))
                y = b
            with R.dataflow():
                z = R.exp(y)
                R.output(z)
            return z

    program, hidden = compiled(Model), relu(X @ WEIGHTS)
    for _ in range(2):
        close(program(X, np.array(True)), np.exp(np.exp(relu(-hidden))))
        close(program(X, np.array(False)), np.exp(-np.tanh(hidden @ WEIGHTS)))


def test_functions_that_call_each_other() -> None:
    @I.ir_module
    class Model:
        @R.function(private=True)
        def layer(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            with R.dataflow():
                a = R.nn.relu(R.matmul(x, W))
                R.output(a)
            return a

        @R.function
        def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            cls = Model
            with R.dataflow():
                a: R.Tensor((4, 16), "float32") = cls.layer(x)
                b: R.Tensor((4, 16), "float32") = cls.layer(a)
                c = R.tanh(b)
                R.output(c)
            return c

    program = compiled(Model)
    assert set(program.plan) == {"layer", "main"}
    close(program(X), np.tanh(relu(relu(X @ WEIGHTS) @ WEIGHTS)))


def test_a_loop_by_recursion() -> None:
    @I.ir_module
    class Model:
        @R.function(private=True)
        def counted(x: R.Tensor((4,), "float32"), n: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
            cls = Model
            more = R.greater(n, R.const(0, "int64"))
            if more:
                left = R.subtract(n, R.const(1, "int64"))
                y: R.Tensor((4,), "float32") = cls.counted(R.add(x, R.const(1, "float32")), left)
            else:
                y: R.Tensor((4,), "float32") = R.nn.relu(x)
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32"), n: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
            cls = Model
            y: R.Tensor((4,), "float32") = cls.counted(x, n)
            return y

    close(compiled(Model)(random(4), np.array(3)), relu(random(4) + 3))


def test_an_operator_that_nobody_has() -> None:
    tvm.register_global_func("testing.twice", lambda x: tvm.runtime.tensor(x.numpy() * 2), override=True)

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.call_pure_packed("testing.twice", a, ty_args=R.Tensor((4, 16), "float32"))
                c = R.exp(b)
                R.output(c)
            return c

    program = compiled(Model)
    assert [kernel.label for kernel in program.plan["main"].kernels] == ["relu", "exp"]
    close(program(X), np.exp(2 * relu(X)))


def test_a_prim_func_of_the_users() -> None:
    @I.ir_module
    class Model:
        @T.prim_func(private=True, s_tir=True)
        def increment(a: T.Buffer((4, 16), "float32"), b: T.Buffer((4, 16), "float32")):
            for i, j in T.grid(4, 16):
                with T.sblock("b"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    b[vi, vj] = a[vi, vj] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            cls = Model
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.call_tir(cls.increment, (a,), out_ty=R.Tensor((4, 16), "float32"))
                c = R.exp(b)
                R.output(c)
            return c

    close(compiled(Model)(X), np.exp(relu(X) + 1))


def test_integers_in_and_several_dtypes_out() -> None:
    table = relax.const(random(10, 8))

    @I.ir_module
    class Model:
        @R.function
        def main(i: R.Tensor((5,), "int64"), k: R.Tensor((5,), "int32")) -> R.Tuple(
            R.Tensor((5, 8), "float32"), R.Tensor((5,), "int32"), R.Tensor((5,), "bool")
        ):
            with R.dataflow():
                a = R.nn.relu(R.take(table, i, axis=0))
                b = R.add(k, k)
                c = R.equal(b, R.const(4, "int32"))
                R.output(a, b, c)
            return (a, b, c)

    rows, numbers = np.array([0, 9, 3, 3, 1]), np.arange(5, dtype="int32")
    looked_up, doubled, equal = arrays(compiled(Model)(rows, numbers))
    np.testing.assert_array_equal(looked_up, relu(random(10, 8)[rows]))
    np.testing.assert_array_equal(doubled, 2 * numbers)
    np.testing.assert_array_equal(equal, 2 * numbers == 4)


def test_tuples_in_and_tuples_in_tuples_out() -> None:
    pair = relax.TupleType([relax.TensorType((4, 16), "float32")] * 2)
    given = relax.Var("pair", pair)
    builder = relax.BlockBuilder()
    with builder.function("main", [given]):
        with builder.dataflow():
            total = builder.emit(R.add(given[0], given[1]))
            halves = builder.emit(R.split(total, 2, axis=1))
            result = builder.emit_output(relax.Tuple([total, halves]))
        builder.emit_func_output(result)

    total, (left, right) = arrays(compiled(builder.get())((X, tvm.runtime.tensor(X))))
    close_to = np.hstack([left, right])
    np.testing.assert_allclose(total, 2 * X, rtol=1e-6)
    np.testing.assert_array_equal(close_to, total)


def test_inputs_and_constants_as_results() -> None:
    number = relax.const(random(3))

    @I.ir_module
    class Model:
        @R.function
        def main(unused: R.Tensor((2,), "int64"), x: R.Tensor((4, 16), "float32")) -> R.Tuple(
            R.Tensor((4, 16), "float32"), R.Tensor((3,), "float32"), R.Tensor((4, 16), "float32")
        ):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return (x, number, y)

    same, constant, y = arrays(compiled(Model)(np.zeros(2, "int64"), X))
    np.testing.assert_array_equal(same, X)
    np.testing.assert_array_equal(constant, random(3))
    np.testing.assert_array_equal(y, relu(X))


def test_a_function_that_does_nothing() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            return x

    program = compiled(Model)
    np.testing.assert_array_equal(arrays(program(X)), X)
    assert program.plan["main"].kernels == ()


def test_a_dataflow_block_with_nothing_to_compute() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            with R.dataflow():
                y = x
                R.output(y)
            with R.dataflow():
                R.output()
            return y

    np.testing.assert_array_equal(arrays(compiled(Model)(X)), X)


def test_what_prints_is_not_lost_and_not_moved(capfd: pytest.CaptureFixture[str]) -> None:
    @I.ir_module
    class Model:
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            a = R.nn.relu(x)
            _ = R.print(a, format="a is {}")
            return R.exp(a)

    close(compiled(Model)(np.array([0.0, 1.0], "float32")), np.exp([0.0, 1.0]))
    assert capfd.readouterr().out.strip() == "a is [0. 1.]"


def test_no_elements_and_no_dimensions() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((0, 16), "float32"), s: R.Tensor((), "float32")) -> R.Tuple(
            R.Tensor((0, 16), "float32"), R.Tensor((), "float32")
        ):
            with R.dataflow():
                a = R.exp(R.nn.relu(x))
                b = R.exp(R.nn.relu(s))
                R.output(a, b)
            return (a, b)

    none, one = arrays(compiled(Model)(random(0, 16), np.float32(1)))
    assert none.shape == (0, 16) and one.shape == ()
    np.testing.assert_allclose(one, np.e, rtol=1e-5)


def test_half_precision_stays_with_tvm_where_the_libraries_decline() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((4, 16), "float16"), w: R.Tensor((16, 8), "float16")) -> R.Tensor(
            (4, 8), "float16"
        ):
            with R.dataflow():
                y = R.nn.relu(R.matmul(x, w))
                R.output(y)
            return y

    program = compiled(Model)
    x, w = X.astype("float16"), random(16, 8).astype("float16")
    np.testing.assert_allclose(arrays(program(x, w)), relu(x @ w), rtol=1e-2, atol=1e-2)
    assert "tvm" in backends_of(program)
    assert any("float16" in declined.reason for declined in program.plan["main"].declined)


def test_an_onnx_input_that_no_operator_reads() -> None:
    def value(name: str, dtype: int, *shape: int) -> object:
        return helper.make_tensor_value_info(name, dtype, shape)

    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [value("flag/0", TensorProto.INT64, 2), value("x", TensorProto.FLOAT, 4, 16)],
        [value("y", TensorProto.FLOAT, 4, 16)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = compiled(model)
    close(program(x=X, **{"flag/0": np.zeros(2, "int64")}), relu(X))
    close(program(np.zeros(2, "int64"), X), relu(X))
