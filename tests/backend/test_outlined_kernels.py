"""Library kernels with several results or parts, and kernels that compute a value which another one computes too."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import reference
from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.backends import get, register_codegens
from unity_collage.graph import DataflowGraph, outside_vars
from unity_collage.lowering.outline import Group, global_var, outline
from unity_collage.lowering.outlined import external_function, kernel_function
from unity_collage.measure.kernels import build_kernel, output_tensors
from unity_collage.passes import FuseRemaining, OffloadBYOC, SearchPartition
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.costs import Cost, Costs
from unity_collage.testing import graphs

WEIGHTS = np.random.default_rng(1).standard_normal((16, 16), dtype="float32") * 0.2
W = relax.const(WEIGHTS)
V = relax.const(WEIGHTS[::-1].copy())
X = np.random.default_rng(2).standard_normal(graphs.SHAPE, dtype="float32")


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        with R.dataflow():
            a = R.matmul(x, W)
            b = R.matmul(x, V)
            c = R.add(a, b)
            d = R.multiply(c, a)
            R.output(d)
        return d


def grouped(func: relax.Function, *candidates: Candidate) -> IRModule:
    """``func`` with the candidates as functions of their libraries."""
    graph = DataflowGraph(func)
    functions: dict[relax.GlobalVar, relax.Function] = {}
    groups = []
    for candidate in candidates:
        symbol = f"kernel{candidate.id}"
        inner = kernel_function(graph, candidate)
        external = external_function(inner, candidate.backend, candidate.label, symbol)
        name = global_var(symbol, external)
        functions[name] = external
        sub = candidate.sub_graph(graph)
        groups.append(Group(sub, name, tuple(outside_vars(sub))))
    return relax.transform.Normalize()(IRModule({"main": outline(graph, groups), **functions}))


def run(mod: IRModule, *inputs: np.ndarray) -> np.ndarray:
    with uc.host_target() as target:
        machine = relax.VirtualMachine(relax.build(FuseRemaining()(mod), target), tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(value) for value in inputs)).numpy()


def same_numbers(func: relax.Function, mod: IRModule, *inputs: np.ndarray, stock: bool = False) -> None:
    """After our pass or TVM's own, the program computes what ``func`` does."""
    register_codegens([get("onednn"), get("openblas")])
    offload = relax.transform.RunCodegen() if stock else OffloadBYOC()
    right = reference.run(func, inputs)[0]
    np.testing.assert_allclose(run(offload(mod), *inputs), right, rtol=1e-4, atol=1e-5)


def indexes(func: relax.Function, *ops: str) -> tuple[int, ...]:
    """The nodes of these operators."""
    return tuple(node.index for node in DataflowGraph(func).nodes if node.op in ops)


@pytest.mark.parametrize("backend", ["onednn", "openblas"])
@pytest.mark.parametrize("stock", [False, True])
def test_a_kernel_of_two_products_returns_both(backend: str, stock: bool) -> None:
    func = Model["main"]
    products = indexes(func, "relax.matmul")
    same_numbers(func, grouped(func, Candidate(0, backend, "typed", "products", products)), X, stock=stock)


def test_an_exit_that_feeds_the_inside_is_returned_too() -> None:
    """The first product is read by the sum inside and by the multiplication outside."""
    func = Model["main"]
    inside = indexes(func, "relax.matmul", "relax.add")
    candidate = Candidate(0, "onednn", "typed", "products", inside)
    assert candidate.sub_graph(DataflowGraph(func)).exit.bit_count() == 2
    same_numbers(func, grouped(func, candidate), X)


@pytest.mark.parametrize("stock", [False, True])
def test_a_kernel_of_several_parts(stock: bool) -> None:
    func = Model["main"]
    first, second = indexes(func, "relax.matmul")
    (joined,) = indexes(func, "relax.add")
    parts = (("onednn.second", (second, joined)), ("onednn.first", (first,)))
    candidate = Candidate(0, "onednn", "typed", "products", (first, second, joined), composites=parts)
    same_numbers(func, grouped(func, candidate), X, stock=stock)


def test_a_kernel_of_parts_and_a_loose_operator() -> None:
    func = Model["main"]
    products = indexes(func, "relax.matmul")
    parts = tuple((f"onednn.product{i}", (index,)) for i, index in enumerate(products))
    inside = (*products, *indexes(func, "relax.add"))
    same_numbers(func, grouped(func, Candidate(0, "onednn", "typed", "sum", inside, composites=parts)), X)


def test_two_kernels_that_both_compute_one_relu() -> None:
    """exp(relu(x)) + tanh(relu(x)) in two kernels of oneDNN: the relu is inside both, and neither writes it."""
    func = graphs.diamond()
    (relu,) = indexes(func, "relax.nn.relu")
    pairs = [indexes(func, "relax.nn.relu", f"relax.{op}") for op in ("exp", "tanh")]
    candidates = [
        Candidate(i, "onednn", "typed", "pair", pair, hidden=(relu,)) for i, pair in enumerate(pairs)
    ]
    mod = grouped(func, *candidates)
    calls = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    assert sum(isinstance(call.op, relax.GlobalVar) for call in calls) == 2
    same_numbers(func, mod, X)


def test_the_search_computes_one_relu_twice_where_that_is_cheaper() -> None:
    func = graphs.diamond()
    alone = [Candidate(i, "tvm", "typed", "alone", (i,)) for i in range(4)]
    (relu,) = indexes(func, "relax.nn.relu")
    pairs = [indexes(func, "relax.nn.relu", f"relax.{op}") for op in ("exp", "tanh")]
    twice = [
        Candidate(4 + i, "onednn", "typed", "pair", pair, hidden=(relu,)) for i, pair in enumerate(pairs)
    ]
    costs = {"alone": Cost(1.0), "pair": Cost(0.5)}
    keys = {candidate.id: candidate.label for candidate in (*alone, *twice)}
    typed = COSTS.write(CANDIDATES.write(func, (*alone, *twice)), Costs(costs, keys))
    mod = SearchPartition()(IRModule({"main": typed}))
    assert sorted(kernel.label for kernel in PLAN.read(mod["main"]).kernels) == [
        "alone",
        "pair",
        "pair",
    ]
    same_numbers(func, mod, X)


def test_a_kernel_with_parts_is_built_alone_as_the_program_has_it() -> None:
    func = Model["main"]
    products = indexes(func, "relax.matmul")
    parts = tuple((f"onednn.product{i}", (index,)) for i, index in enumerate(products))
    candidate = Candidate(0, "onednn", "typed", "products", products, composites=parts)
    alone = kernel_function(DataflowGraph(func), candidate, lift_constants=True)
    arrays = [X, WEIGHTS, WEIGHTS[::-1].copy()]
    kernel, constants = build_kernel(alone, arrays, get("onednn"), uc.host_target())
    outputs = output_tensors(alone)
    kernel(tvm.runtime.tensor(X), *constants, *outputs)
    for got, right in zip(outputs, (X @ WEIGHTS, X @ WEIGHTS[::-1]), strict=True):
        np.testing.assert_allclose(got.numpy(), right, rtol=1e-4, atol=1e-5)
