"""Kernels of TVM with several results, kernels that compute a value twice, and programs with virtual devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import reference
from unity_collage.graph import DataflowGraph, SubGraph, outside_vars
from unity_collage.lowering.outline import Group, global_var, outline
from unity_collage.lowering.outlined import primitive_function
from unity_collage.passes import AnnotateCandidates, EstimateCosts, FuseRemaining, SearchPartition
from unity_collage.plan.candidate import Candidate
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import only_backends
from unity_collage.testing.fixed_cost import FixedCost


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32")


def grouped(func: relax.Function, candidates: Sequence[Candidate]) -> IRModule:
    """``func`` with the candidates as kernels of TVM."""
    graph = DataflowGraph(func)
    functions: dict[relax.GlobalVar, relax.Function] = {}
    groups = []
    for candidate in candidates:
        sub = candidate.sub_graph(graph)
        kernel = primitive_function(sub)
        name = global_var(f"kernel{candidate.id}", kernel)
        functions[name] = kernel
        groups.append(Group(sub, name, tuple(outside_vars(sub))))
    return relax.transform.Normalize()(IRModule({"main": outline(graph, groups), **functions}))


def run(mod: IRModule, *inputs: np.ndarray, devices: int = 1) -> list[np.ndarray]:
    with uc.host_target() as target:
        program = relax.build(FuseRemaining()(mod), target)
    machine = relax.VirtualMachine(program, [tvm.cpu(number) for number in range(devices)])
    result = machine["main"](*(tvm.runtime.tensor(value) for value in inputs))
    return [value.numpy() for value in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def kernels(mod: IRModule) -> list[str]:
    with uc.host_target():
        lowered = FuseRemaining()(mod)
    return sorted(g.name_hint for g, f in lowered.functions_items() if isinstance(f, tvm.tirx.PrimFunc))


@I.ir_module
class Exits:
    @R.function
    def product_and_relu(x: R.Tensor((4, 16), "float32"), w: R.Tensor((16, 8), "float32")) -> R.Tuple(
        R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")
    ):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(a, b)
        return (a, b)

    @R.function
    def two_products(
        x: R.Tensor((4, 16), "float32"), w: R.Tensor((16, 8), "float32"), v: R.Tensor((16, 8), "float32")
    ) -> R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.matmul(x, v)
            R.output(a, b)
        return (a, b)

    @R.function
    def rows_and_their_sums(
        x: R.Tensor((4, 16), "float32"),
    ) -> R.Tuple(R.Tensor((4, 16), "float32"), R.Tensor((4, 1), "float32")):
        with R.dataflow():
            a = R.nn.softmax(x)
            b = R.sum(x, axis=[1], keepdims=True)
            R.output(a, b)
        return (a, b)

    @R.function
    def three_levels(
        x: R.Tensor((4, 16), "float32"),
    ) -> R.Tuple(R.Tensor((4, 16), "float32"), R.Tensor((4, 16), "float32"), R.Tensor((16, 4), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.permute_dims(b)
            R.output(a, b, c)
        return (a, b, c)


@pytest.mark.parametrize("name", [g.name_hint for g in Exits.get_global_vars()])
def test_a_kernel_of_tvm_with_several_results(name: str) -> None:
    func = Exits[name].without_attr("global_symbol").with_attr("global_symbol", "main")
    count = len(DataflowGraph(func))
    indexes = tuple(i for i in range(count) if DataflowGraph(func).nodes[i].call is not None)
    mod = grouped(func, [Candidate(0, "tvm", "typed", "all", indexes)])
    assert len(kernels(mod)) == 1
    inputs = [random(*(int(n) for n in p.ty.shape.values), seed=i) for i, p in enumerate(func.params)]
    for got, right in zip(run(mod, *inputs), reference.run(func, inputs), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def test_two_kernels_that_both_compute_one_relu() -> None:
    """exp(relu(x)) + tanh(relu(x)): the relu is inside both kernels, and neither writes it."""
    func = graphs.diamond()
    index = {node.op: node.index for node in DataflowGraph(func).nodes}
    relu, exp, tanh = (index[f"relax.{op}"] for op in ("nn.relu", "exp", "tanh"))
    pairs = [tuple(sorted((relu, other))) for other in (exp, tanh)]
    candidates = [Candidate(i, "tvm", "typed", "pair", pair, hidden=(relu,)) for i, pair in enumerate(pairs)]
    graph = DataflowGraph(func)
    assert all(candidate.sub_graph(graph).exit != SubGraph(graph, 1 << relu).exit for candidate in candidates)
    mod = grouped(func, candidates)
    assert [name for name in kernels(mod) if name.startswith("kernel")] == ["kernel0", "kernel1"]
    x = random(*graphs.SHAPE)
    np.testing.assert_allclose(run(mod, x)[0], reference.run(func, [x])[0], rtol=1e-5, atol=1e-6)


@I.ir_module
class TwoDevices:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")) -> R.Tensor((4, 16), "float32", "llvm:1"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.to_vdevice(a, "llvm:1")
            c = R.nn.relu(b)
            d = R.exp(c)
            R.output(d)
        return d


def test_a_program_with_virtual_devices_goes_through_all_passes() -> None:
    """Equal kernels on two devices are two functions: what they return is on another device."""
    line = [AnnotateCandidates(), EstimateCosts(FixedCost()), SearchPartition()]
    with only_backends(), uc.host_target():
        mod = tvm.transform.Sequential(line)(TwoDevices)
    assert len([f for f in mod.functions.values() if "Primitive" in (f.attrs or {})]) == 2
    x = random(4, 16)
    np.testing.assert_allclose(run(mod, x, devices=2)[0], np.exp(np.maximum(x, 0)), rtol=1e-5)
