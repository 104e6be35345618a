"""Modules that TVM alone compiles right, with their inputs: what is beyond a plain network, and random programs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

Value = np.ndarray | tuple["Value", ...]
Case = tuple[IRModule, Sequence[Value]]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32")


X, W = floats(4, 8), floats(8, 8, seed=1)


def tuples_as_parameters() -> Case:
    @I.ir_module
    class Model:
        @R.function
        def main(
            t: R.Tuple(
                R.Tensor((4, 8), "float32"), R.Tuple(R.Tensor((8, 8), "float32"), R.Tensor((8,), "float32"))
            ),
        ):
            with R.dataflow():
                x = t[0]
                inner = t[1]
                h = R.matmul(x, inner[0])
                a = R.nn.relu(R.add(h, inner[1]))
                out = ((a, h), x)
                R.output(out)
            return out

    return Model, [(X, (W, floats(8)))]


def a_loop_by_recursion() -> Case:
    @I.ir_module
    class Model:
        @R.function(private=True)
        def loop(
            i: R.Tensor((), "int64"),
            n: R.Tensor((), "int64"),
            x: R.Tensor((4, 8), "float32"),
            w: R.Tensor((8, 8), "float32"),
        ) -> R.Tensor((4, 8), "float32"):
            cls = Model
            c = R.less(i, n)
            if c:
                h = R.tanh(R.matmul(x, w))
                y = cls.loop(R.add(i, R.const(1, "int64")), n, h, w)
            else:
                y = x
            return y

        @R.function
        def main(
            n: R.Tensor((), "int64"), x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")
        ) -> R.Tensor((4, 8), "float32"):
            cls = Model
            h = R.nn.relu(x)
            y = cls.loop(R.const(0, "int64"), n, h, w)
            z = R.add(y, x)
            return z  # noqa: RET504

    return Model, [np.array(5), X, W]


def a_loop_that_grows_its_state() -> Case:
    @I.ir_module
    class Model:
        @R.function(private=True)
        def loop(x: R.Tensor(("n", 8), "float32"), m: R.Tensor((), "int64")) -> R.Tensor(
            ndim=2, dtype="float32"
        ):
            cls = Model
            c = R.greater(m, R.const(0, "int64"))
            if c:
                y = cls.loop(R.concat((x, R.exp(x)), axis=0), R.subtract(m, R.const(1, "int64")))
            else:
                y = x
            return y

        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), m: R.Tensor((), "int64")) -> R.Tensor(
            ndim=2, dtype="float32"
        ):
            cls = Model
            y = cls.loop(R.tanh(x), m)
            return y  # noqa: RET504

    return Model, [floats(3, 8), np.array(2)]


def branches_of_symbolic_shape() -> Case:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")):
            if c:
                y = R.multiply(R.sum(x, axis=[0]), R.const(2, "float32"))
            else:
                y = R.max(x, axis=[0])
            return y

    return Model, [floats(5, 8), np.array(False)]


def branches_between_products() -> Case:
    @I.ir_module
    class Model:
        @R.function
        def main(
            c: R.Tensor((), "bool"), x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")
        ) -> R.Tensor((4, 8), "float32"):
            h = R.matmul(x, w)
            if c:
                y = R.nn.relu(R.matmul(h, w))
            else:
                y = R.matmul(R.negative(h), w)
            z = R.add(y, x)
            return z  # noqa: RET504

    return Model, [np.array(True), X, W]


def functions_that_call_functions() -> Case:
    @I.ir_module
    class Model:
        @R.function(private=True)
        def inner(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (4, 8), "float32"
        ):
            with R.dataflow():
                r = R.nn.relu(R.matmul(x, w))
                R.output(r)
            return r

        @R.function(private=True)
        def outer(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tuple(
            R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")
        ):
            cls = Model
            with R.dataflow():
                a = cls.inner(x, w)
                t = (a, cls.inner(a, w))
                R.output(t)
            return t

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (4, 8), "float32"
        ):
            cls = Model
            with R.dataflow():
                t = cls.outer(x, w)
                c = R.add(t[0], t[1])
                R.output(c)
            return c

    return Model, [X, W]


def several_dataflow_blocks() -> Case:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                g = R.nn.relu(a)
                R.output(a, g)
            b = R.add(g, a)
            with R.dataflow():
                e = R.add(R.nn.relu(R.matmul(b, w)), g)
                R.output(e)
            return (e, a)

    return Model, [X, W]


def a_range_of_computed_length() -> Case:
    @I.ir_module
    class Model:
        @R.function
        def main(i: R.Tensor(("b", "s"), "int64")):
            b, s, n = T.int64(), T.int64(), T.int64()
            with R.dataflow():
                sizes = R.shape_to_tensor(R.shape([b, s]))
                length = R.reshape(R.take(sizes, R.const(1, "int64"), axis=0), R.shape([1]))
                _ = R.match_cast(R.tensor_to_shape(length), R.Shape([n]))
                y = R.arange(R.prim_value(0), n, R.prim_value(1), dtype="int64")
                z = R.add(y, R.const(1, "int64"))
                R.output(z)
            return z

    return Model, [np.array([[3, 1, 2, 5]])]


def boxes_that_are_left_over() -> Case:
    @I.ir_module
    class Model:
        @R.function
        def main(
            b: R.Tensor((1, 3, 4), "float32"),
            s: R.Tensor((1, 1, 3), "float32"),
            t: R.Tensor((3, 4), "float32"),
        ):
            with R.dataflow():
                o = R.vision.all_class_non_max_suppression(
                    b, s, R.const(3, "int64"), R.const(0.5), R.const(0.0), output_format="onnx"
                )
                c = R.strided_slice(o[0], axes=[1], begin=[2], end=[3], strides=[1])
                y = R.take(t, R.squeeze(c, axis=[1]), axis=0, mode="wrap")
                R.output(y)
            return y

    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1.1], [5, 5, 6, 6]]], "float32")
    return Model, [boxes, np.array([[[0.9, 0.8, 0.7]]], "float32"), floats(3, 4)]


def places_that_are_not_zero() -> Case:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((3, 4), "bool"), t: R.Tensor((3, 4), "float32")):
            n = T.int64()
            with R.dataflow():
                c = R.match_cast(R.nonzero(x), R.Tensor((2, n), "int64"))
                g = R.gather_nd(t, R.permute_dims(c))
                R.output(g)
            return g

    return Model, [np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 1]], bool), floats(3, 4)]


def unique_values() -> Case:
    @I.ir_module
    class Model:
        @R.function
        def main(
            x: R.Tensor((6,), "float32"), a: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")
        ):
            n = T.int64()
            with R.dataflow():
                u = R.unique(
                    x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=0
                )
                c = R.match_cast(u, R.Tensor((n,), "float32"))
                s = R.add(c, R.const(1.0))
                r = R.nn.relu(R.matmul(a, w))
                R.output(s, r)
            return (s, r)

    return Model, [np.array([2, 1, 1, 3, 4, 3], "float32"), X, W]


_UNARY = ("nn.relu", "tanh", "negative", "sigmoid")


def random_program(seed: int) -> Case:
    """Private functions that call earlier ones, and a ``main`` of several blocks with branches, over (4, 8) values."""
    draw = random.Random(seed)
    lines = ["@I.ir_module", "class Model:"]
    for number in range(draw.randint(1, 3)):
        lines += _random_function(draw, f"f{number}", [f"f{k}" for k in range(number)], True)
    called = [line.split("(")[0].split()[-1] for line in lines if line.strip().startswith("def ")]
    lines += _random_function(draw, "main", called, False)
    names = {"I": I, "R": R, "T": T, "tvm": tvm}
    return tvm.script.from_source("\n".join(lines), extra_vars=names), [X, W, np.array(seed % 2 == 0)]


def _random_function(draw: random.Random, name: str, callees: Sequence[str], private: bool) -> list[str]:
    tensor = 'R.Tensor((4, 8), "float32")'
    head = f'x: {tensor}, w: R.Tensor((8, 8), "float32"), c: R.Tensor((), "bool")'
    lines = [
        f"    @R.function(private={private})",
        f"    def {name}({head}) -> {tensor}:",
        "        cls = Model",
    ]
    values = ["x"]
    for number in range(draw.randint(4, 8)):
        value = f"v{number}"
        if draw.random() < 0.2:
            lines += ["        if c:", f"            {value} = {_random_value(draw, values, callees)}"]
            lines += ["        else:", f"            {value} = {_random_value(draw, values, callees)}"]
        else:
            lines.append(f"        {value} = {_random_value(draw, values, callees)}")
        values.append(value)
    return [*lines, f"        return {values[-1]}"]


def _random_value(draw: random.Random, values: Sequence[str], callees: Sequence[str]) -> str:
    one, other = draw.choice(values), draw.choice(values)
    kinds: list[Callable[[], str]] = [
        lambda: f"R.{draw.choice(_UNARY)}({one})",
        lambda: f"R.add({one}, {other})",
        lambda: f"R.multiply({one}, R.const(0.5))",
        lambda: f"R.matmul({one}, w)",
        lambda: f"R.subtract({one}, R.max({other}, axis=[1], keepdims=True))",
    ]
    if callees:
        kinds.append(lambda: f"cls.{draw.choice(callees)}({one}, w, c)")
    return draw.choice(kinds)()


CASES: dict[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        tuples_as_parameters,
        a_loop_by_recursion,
        a_loop_that_grows_its_state,
        branches_of_symbolic_shape,
        branches_between_products,
        functions_that_call_functions,
        several_dataflow_blocks,
        a_range_of_computed_length,
        boxes_that_are_left_over,
        places_that_are_not_zero,
        unique_values,
    )
}
CASES |= {f"random program {seed}": (lambda seed=seed: random_program(seed)) for seed in range(4)}
