"""Small named graphs: the shapes that partitioners get wrong, one function each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax
from tvm.script import relax as R

from ..graph.shapes import extents_of

SHAPE = (4, 16)

Emit = Callable[[relax.Expr], relax.Var]
Body = Callable[[Emit, list[relax.Var]], relax.Expr]


def _graph(body: Body, inputs: int = 1, shapes: Sequence[tuple[int, ...]] | None = None) -> relax.Function:
    """A function of ``inputs`` tensors of SHAPE, or of one tensor for each of the ``shapes``."""
    shapes = [SHAPE] * inputs if shapes is None else shapes
    params = [
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in zip("xyzuvw", shapes, strict=False)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, params))
        builder.emit_func_output(result)
    return builder.get()["main"]


def inputs(func: relax.Function, seed: int = 0) -> list[np.ndarray]:
    """Random arguments for one of these graphs."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(extents_of(param), dtype="float32") for param in func.params]


def chain() -> relax.Function:
    """relu, exp, tanh in a row."""
    return _graph(lambda emit, p: R.tanh(emit(R.exp(emit(R.nn.relu(p[0]))))))


def diamond() -> relax.Function:
    """relu read by exp and tanh, which are added."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.nn.relu(params[0]))
        return R.add(emit(R.exp(top)), emit(R.tanh(top)))

    return _graph(body)


def diamond_with_tap() -> relax.Function:
    """exp(relu(x)) + relu(x): the relu is a tap, and {relu, add} without exp would wait for itself."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.nn.relu(params[0]))
        return R.add(emit(R.exp(top)), top)

    return _graph(body)


def double_residual() -> relax.Function:
    """a + (relu(a) + a) with a = abs(x)."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.abs(params[0]))
        return R.add(top, emit(R.add(emit(R.nn.relu(top)), top)))

    return _graph(body)


def two_branches_joining() -> relax.Function:
    """relu(x) + relu(y): a fan-in that is never one candidate in Relay Collage."""
    return _graph(lambda emit, p: R.add(emit(R.nn.relu(p[0])), emit(R.nn.relu(p[1]))), inputs=2)


def tuple_result() -> relax.Function:
    """Both relu(x) and exp(relu(x)) are returned."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.nn.relu(params[0]))
        return relax.Tuple([top, emit(R.exp(top))])

    return _graph(body)


def intermediate_tuple() -> relax.Function:
    """concat((relu(x), exp(relu(x))))."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.nn.relu(params[0]))
        return R.concat((top, emit(R.exp(top))), axis=1)

    return _graph(body)


def shared_input() -> relax.Function:
    """Two products of one input, added."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        x, y, z = params
        return R.add(emit(R.multiply(x, y)), emit(R.multiply(x, z)))

    return _graph(body, inputs=3)


def k22() -> relax.Function:
    """K2,2: both of a = relu(x), c = exp(y) are read by both of b = a + c, d = a * c."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        a, c = emit(R.nn.relu(params[0])), emit(R.exp(params[1]))
        return R.subtract(emit(R.add(a, c)), emit(R.multiply(a, c)))

    return _graph(body, inputs=2)


def opaque_in_the_middle() -> relax.Function:
    """relu, a call of a function that only the VM can run, relu."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.nn.relu(params[0]))
        ty = relax.TensorType(SHAPE, "float32")
        return R.nn.relu(emit(relax.call_pure_packed("testing.opaque", top, ty_args=ty)))

    return _graph(body)


def diamond_multi_output() -> relax.Function:
    """relu read by exp and tanh, both returned: one kernel of it has two exits."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.nn.relu(params[0]))
        return relax.Tuple([emit(R.exp(top)), emit(R.tanh(top))])

    return _graph(body)


def three_adds() -> relax.Function:
    """Three sums in a row: the first and the third without the second would wait for themselves."""
    return _graph(lambda emit, p: R.add(emit(R.add(emit(R.add(p[0], p[1])), p[1])), p[1]), inputs=2)


def crossed_pairs() -> relax.Function:
    """a -> d and b -> c directly, a -> c and b -> d through others: {a,d} and {b,c} wait for each other."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        a, b = emit(R.nn.relu(params[0])), emit(R.exp(params[1]))
        c = emit(R.add(b, emit(R.tanh(a))))
        d = emit(R.multiply(a, emit(R.sigmoid(b))))
        return R.subtract(c, d)

    return _graph(body, inputs=2)


def labelled_parts() -> relax.Function:
    """Two parts, relu-exp and tanh-abs, and a loose sum: the first is read by the second and by the sum."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        first = emit(R.exp(emit(R.nn.relu(params[0]))))
        second = emit(R.abs(emit(R.tanh(first))))
        return R.add(first, second)

    return _graph(body)


def escaping_part_value() -> relax.Function:
    """A part relu-exp whose inner relu is read outside of the part, and returned too."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        inner = emit(R.nn.relu(params[0]))
        outer = emit(R.exp(inner))
        return relax.Tuple([emit(R.tanh(outer)), inner])

    return _graph(body)


def concat_of_one_value_twice() -> relax.Function:
    """concat((relu(x), relu(x))), one value in two fields."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.nn.relu(params[0]))
        return R.concat((top, top), axis=1)

    return _graph(body)


def concat_of_permuted(fields: int) -> relax.Function:
    """concat((permute_dims(x), permute_dims(x), ...))."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        return R.concat([emit(R.permute_dims(params[0])) for _ in range(fields)])

    return _graph(body)


def bound_tuple() -> relax.Function:
    """A tuple that is a binding of its own: t = (relu(x), exp(y)); concat(t)."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        fields = emit(relax.Tuple([emit(R.nn.relu(params[0])), emit(R.exp(params[1]))]))
        return R.concat(fields, axis=1)

    return _graph(body, inputs=2)


def bound_constant() -> relax.Function:
    """A constant that is a binding of its own and read by two sums."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        bias = emit(relax.const(np.linspace(-1, 1, SHAPE[1], dtype="float32")))
        return R.multiply(emit(R.add(params[0], bias)), emit(R.subtract(params[1], bias)))

    return _graph(body, inputs=2)


def split_projections_concat() -> relax.Function:
    """split(x) in two, exp of one half, both concatenated the other way round."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        halves = emit(R.split(params[0], 2, axis=1))
        left, right = emit(relax.TupleGetItem(halves, 0)), emit(relax.TupleGetItem(halves, 1))
        return R.concat((right, emit(R.exp(left))), axis=1)

    return _graph(body)


def gelu_extract() -> relax.Function:
    """Product, bias, reshape, and then GELU by tanh: three readers of one value that join again."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        x, weight, bias = params
        value = emit(R.reshape(emit(R.add(emit(R.matmul(x, weight)), bias)), (2, 2, 16)))
        cube = emit(R.multiply(emit(R.multiply(value, value)), value))
        inner = emit(R.add(value, emit(R.multiply(cube, relax.const(0.044715, "float32")))))
        gate = emit(R.tanh(emit(R.multiply(inner, relax.const(0.79788456, "float32")))))
        half = emit(R.multiply(value, relax.const(0.5, "float32")))
        return R.multiply(half, emit(R.add(gate, relax.const(1.0, "float32"))))

    return _graph(body, shapes=(SHAPE, (16, 16), (16,)))


def qkv() -> relax.Function:
    """Three products of one input, all returned."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        return relax.Tuple([emit(R.matmul(params[0], weight)) for weight in params[1:]])

    return _graph(body, shapes=(SHAPE, (16, 8), (16, 8), (16, 8)))


def attention() -> relax.Function:
    """softmax(q k * scale) v: product, scale, softmax, product."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        query, key, value = params
        scores = emit(R.multiply(emit(R.matmul(query, key)), relax.const(0.25, "float32")))
        return R.matmul(emit(R.nn.softmax(scores)), value)

    return _graph(body, shapes=((2, 4, 16), (2, 16, 4), (2, 4, 16)))


def conv_conv() -> relax.Function:
    """Convolution, relu, convolution."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        x, first, second = params
        return R.nn.conv2d(emit(R.nn.relu(emit(R.nn.conv2d(x, first, padding=1)))), second)

    return _graph(body, shapes=((1, 4, 8, 8), (8, 4, 3, 3), (4, 8, 1, 1)))


def inception_block() -> relax.Function:
    """1x1, 1x1-3x3 and pool-1x1 side by side, concatenated: two 1x1 convolutions share the input."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        x, one, reduce, three, project = params
        first = emit(R.nn.relu(emit(R.nn.conv2d(x, one))))
        reduced = emit(R.nn.relu(emit(R.nn.conv2d(x, reduce))))
        second = emit(R.nn.relu(emit(R.nn.conv2d(reduced, three, padding=1))))
        pooled = emit(R.nn.max_pool2d(x, (3, 3), padding=1))
        third = emit(R.nn.relu(emit(R.nn.conv2d(pooled, project))))
        return R.concat((first, second, third), axis=1)

    return _graph(body, shapes=((1, 4, 8, 8), (4, 4, 1, 1), (2, 4, 1, 1), (4, 2, 3, 3), (2, 4, 1, 1)))


def residual_ladder() -> relax.Function:
    """x + tanh(relu(x)), three times: every value but the last is read twice."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        value = params[0]
        for _ in range(2):
            value = emit(R.add(value, emit(R.tanh(emit(R.nn.relu(value))))))
        return R.add(value, emit(R.tanh(emit(R.nn.relu(value)))))

    return _graph(body)


def control_flow_beside() -> relax.Function:
    """A dataflow block, and an ``if`` behind it that reads both of its values."""
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    condition = relax.Var("y", relax.TensorType((), "bool"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, condition]):
        with builder.dataflow():
            top = builder.emit_output(R.nn.relu(x))
            bottom = builder.emit_output(R.exp(top))
        chosen = builder.emit(relax.If(condition, R.tanh(bottom), R.abs(top)))
        builder.emit_func_output(chosen)
    return builder.get()["main"]


GRAPHS: dict[str, Callable[[], relax.Function]] = {
    func.__name__: func
    for func in (
        chain,
        diamond,
        diamond_with_tap,
        diamond_multi_output,
        double_residual,
        residual_ladder,
        three_adds,
        two_branches_joining,
        tuple_result,
        intermediate_tuple,
        concat_of_one_value_twice,
        bound_tuple,
        bound_constant,
        split_projections_concat,
        shared_input,
        k22,
        crossed_pairs,
        labelled_parts,
        escaping_part_value,
        gelu_extract,
        qkv,
        attention,
        conv_conv,
        inception_block,
        opaque_in_the_middle,
        control_flow_beside,
    )
}
"""All graphs by name."""
