"""A backend of your own: three kernels written by hand as tensor expressions.

Takes     relu; x * y + z in one pass; products of two matrices.
Declines  other dtypes than float32, operands that are constants, empty, repeated or of other shapes.
Needs     nothing besides TVM.
"""

import tvm
from tvm import relax, te
from tvm.relax.dpl import is_op, wildcard

from unity_collage import Backend, host_target
from unity_collage.graph import Limits
from unity_collage.rules import Composite, DFPattern, OnlyValid, Union

PATTERNS = {
    "relu": lambda: is_op("relax.nn.relu")(wildcard()),
    "multiply_add": lambda: is_op("relax.add")(is_op("relax.multiply")(wildcard(), wildcard()), wildcard()),
    "matmul": lambda: is_op("relax.matmul")(wildcard(), wildcard()),
}
ROOTS = {"relu": "relax.nn.relu", "multiply_add": "relax.add", "matmul": "relax.matmul"}


def matmul(x, y):
    k = te.reduce_axis((0, x.shape[1]))
    return te.compute((x.shape[0], y.shape[1]), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k))


KERNELS = {
    "handmade.relu": lambda x: te.compute(x.shape, lambda *i: te.max(x[i], 0.0)),
    "handmade.multiply_add": lambda x, y, z: te.compute(x.shape, lambda *i: x[i] * y[i] + z[i]),
    "handmade.matmul": matmul,
}


def why_not(calls):
    """Why no kernel can read the operands of these calls, or None."""
    operands = [operand for call in calls for operand in call.args]
    if not all(isinstance(operand, relax.Var) for operand in operands):
        return "an operand is a constant, the kernels take tensors"
    if len(set(operands)) < len(operands):
        return "one tensor is two operands"
    if any(operand.ty.dtype != "float32" for operand in operands):
        return f"an operand is {operands[0].ty.dtype}, the kernels are for float32"
    shapes = [[int(extent) for extent in operand.ty.shape.values] for operand in operands]
    if any(0 in shape for shape in shapes):
        return "an operand is empty"
    if calls[0].op.name == "relax.matmul":
        return None if all(len(shape) == 2 for shape in shapes) else "an operand is not a matrix"
    return None if all(shape == shapes[0] for shape in shapes) else "the operands have several shapes"


def rule(_target):
    """Every match of a pattern, labelled with the name of its kernel, if nothing outside reads its inner values."""
    found = {name: DFPattern(name, PATTERNS[name], why_not, ROOTS[name]) for name in PATTERNS}
    return Union(tuple(Composite(f"handmade.{name}", OnlyValid(found[name], Limits())) for name in found))


def codegen(functions, _options, _constant_names):
    return [compiled(func, func.attrs["global_symbol"]) for func in functions]


def compiled(func, symbol):
    """A module with the function ``symbol``, which takes the inputs of ``func`` and then its output."""
    composite = func.body.blocks[0].bindings[0].value
    inputs = [te.placeholder(list(map(int, param.ty.shape.values)), param.ty.dtype) for param in func.params]
    output = KERNELS[composite.attrs["Composite"]](*inputs)
    kernel = te.create_prim_func([*inputs, output]).with_attr("global_symbol", symbol)
    return tvm.compile(tvm.IRModule({symbol: kernel}), host_target()).mod


HANDMADE = Backend(
    name="handmade",
    rule=rule,
    why_unavailable=lambda: None,
    fingerprint=lambda: f"handmade 1.0, tvm {tvm.__version__}",
    codegen=codegen,
)
