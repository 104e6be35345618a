"""Named little graphs: the shapes that partitioners get wrong, one function each."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.script import relax as R

SHAPE = (4, 16)

Emit = Callable[[relax.Expr], relax.Var]


def _graph(body: Callable[[Emit, list[relax.Var]], relax.Expr], inputs: int = 1) -> relax.Function:
    params = [relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in ("x", "y", "z")[:inputs]]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, params))
        builder.emit_func_output(result)
    return builder.get()["main"]


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
    """relu(x) + relu(y): the fan-in that Relay Collage never made one candidate of."""
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
    """relu, a call of a function that only the VM knows, relu."""

    def body(emit: Emit, params: list[relax.Var]) -> relax.Expr:
        top = emit(R.nn.relu(params[0]))
        ty = relax.TensorType(SHAPE, "float32")
        return R.nn.relu(emit(relax.call_pure_packed("testing.opaque", top, ty_args=ty)))

    return _graph(body)


GRAPHS: dict[str, Callable[[], relax.Function]] = {
    func.__name__: func
    for func in (
        chain,
        diamond,
        diamond_with_tap,
        double_residual,
        two_branches_joining,
        tuple_result,
        intermediate_tuple,
        shared_input,
        k22,
        opaque_in_the_middle,
    )
}
"""All of them by name."""
