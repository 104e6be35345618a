"""Random weights of deep functions are small, so that values do not overflow from layer to layer."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.script import relax as R

from unity_collage import reference
from unity_collage.annotations import LIFTED
from unity_collage.graph import DataflowGraph, SubGraph, extract
from unity_collage.index_set import first_n
from unity_collage.measure.inputs import random_inputs
from unity_collage.testing.conformance.cases import function, weights


def lifted(layers: int) -> relax.Function:
    """``layers`` products with constant weights, each behind a ReLU."""

    def body(x: relax.Expr) -> relax.Expr:
        for _ in range(layers):
            x = R.nn.relu(R.matmul(x, weights(64, 64)))
        return x

    graph = DataflowGraph(function(body, [(4, 64)]))
    return extract(SubGraph(graph, first_n(len(graph))), lift_constants=True)


@pytest.mark.parametrize(("layers", "largest"), [(1, 1e3), (2, 1e4), (40, 1e3)])
def test_values_keep_their_size(layers: int, largest: float) -> None:
    func = lifted(layers)
    (result,) = reference.run(func.without_attr(LIFTED), random_inputs(func))
    assert 1e-3 < np.abs(result).max() < largest


def test_few_layers_have_the_inputs_that_they_had() -> None:
    shallow = random_inputs(lifted(2))
    assert 0.9 < shallow[1].std() < 1.1
    assert random_inputs(lifted(6))[1].std() == pytest.approx(np.sqrt(2 / 64), rel=0.1)
