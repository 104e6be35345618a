"""Inputs of kernels with PrimFuncs: indexes lie inside what they index, arguments of logarithms are positive."""

from __future__ import annotations

import numpy as np
from tvm import relax, te

from unity_collage.graph import DataflowGraph, SubGraph, extract
from unity_collage.measure.inputs import edge_inputs, random_inputs


def kernel(compute, *types: relax.TensorType) -> relax.Function:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.emit_te(compute, *params))
        builder.emit_func_output(result)
    mod = builder.get()
    return extract(SubGraph(DataflowGraph(mod["main"], mod), 1), lift_constants=True, alone=True)


def test_indexes_that_a_primfunc_reads_lie_inside() -> None:
    rows = kernel(
        lambda table, at: te.compute((50, 16), lambda i, j: table[at[i], j]),
        relax.TensorType((3, 16), "float32"),
        relax.TensorType((50,), "int64"),
    )
    for inputs in (random_inputs(rows), edge_inputs(rows)):
        assert set(np.unique(inputs[1])) <= {0, 1, 2}
    assert set(np.unique(edge_inputs(rows)[1])) == {0, 2}


def test_an_index_that_is_multiplied_is_zero() -> None:
    flat = kernel(
        lambda table, at: te.compute((50, 16), lambda i, j: table[at[i] * 16 + j]),
        relax.TensorType((48,), "float32"),
        relax.TensorType((50,), "int64"),
    )
    assert not random_inputs(flat)[1].any()


def test_logarithms_get_positive_numbers_and_divisions_no_zeros() -> None:
    ty = relax.TensorType((40, 16), "float32")
    logarithm = kernel(lambda x: te.compute(x.shape, lambda *i: te.log(x(*i))), ty)
    assert (random_inputs(logarithm)[0] > 0).all() and (edge_inputs(logarithm)[0] > 0).all()
    quotient = kernel(lambda x: te.compute(x.shape, lambda *i: 1.0 / x(*i)), ty)
    assert edge_inputs(quotient)[0].all()
    plain = kernel(lambda x: te.compute(x.shape, lambda *i: x(*i) / 3.0), ty)
    assert not edge_inputs(plain)[0].all()
