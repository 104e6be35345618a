"""The bridge end to end: kernels of a toolchain that only TVM knows, measured, chosen, offloaded and run."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FusionPattern
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.backends import registry
from unity_collage.errors import CollageError, UnknownBackend
from unity_collage.lowering.build import EXTERNAL_MODS
from unity_collage.lowering.offload import CONSTANTS
from unity_collage.passes import (
    AnnotateCandidates,
    EstimateCosts,
    FuseRemaining,
    OffloadBYOC,
    SearchPartition,
)
from unity_collage.rules import OpPredicate
from unity_collage.specs import PartitionSpec
from unity_collage.testing.fixed_cost import FixedCost
from unity_collage.testing.foreign_backend import foreign_backend

WEIGHTS = np.random.default_rng(1).standard_normal((16, 8), dtype="float32") * 0.2
W = relax.const(WEIGHTS)
X = np.random.default_rng(2).standard_normal((4, 16), dtype="float32")
BIAS = np.random.default_rng(3).standard_normal(8, dtype="float32")
CHEAP = FixedCost({"theirs": 1e-6, "tvm": 1e-3})


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4, 16), "float32"), b: R.Tensor((8,), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            product = R.matmul(x, W)
            biased = R.add(product, b)
            positive = R.nn.relu(biased)
            grown = R.exp(positive)
            R.output(grown)
        return grown


def patterns() -> list[FusionPattern]:
    left, right, bias = wildcard(), wildcard(), wildcard()
    product = is_op("relax.add")(is_op("relax.matmul")(left, right), bias)
    named = {"root": product, "lhs": left}
    attrs = lambda annotated: {"rows": int(annotated["lhs"].ty.shape.values[0])}  # noqa: E731
    return [
        FusionPattern("theirs.dense_bias", product, named, lambda _context: True, attrs),
        FusionPattern("theirs.relu", is_op("relax.nn.relu")(wildcard())),
    ]


class Borrowed:
    """A third-party code generator: it borrows the kernels of oneDNN, and records its arguments."""

    def __init__(self) -> None:
        self.functions: list[relax.Function] = []
        self.constants: list[str] = []

    def __call__(self, functions, options, constants) -> list[tvm.runtime.Module]:
        self.functions += list(functions)
        self.constants += [str(name) for name in constants.values()]
        codegen = registry.get("onednn").codegen
        assert codegen is not None
        return codegen(functions, options, constants)


def partitioned(mod: IRModule = Model, **options) -> IRModule:
    line = [AnnotateCandidates(**options), EstimateCosts(CHEAP), SearchPartition()]
    with uc.host_target():
        return tvm.transform.Sequential(line)(mod)


def run(mod: IRModule) -> np.ndarray:
    with uc.host_target() as target:
        machine = relax.VirtualMachine(relax.build(FuseRemaining()(mod), target), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(X), tvm.runtime.tensor(BIAS)).numpy()


def expected() -> np.ndarray:
    return np.exp(np.maximum(X @ WEIGHTS + BIAS, 0))


def composites(func: relax.Function) -> list[dict[str, object]]:
    """The attributes of the local functions of an external function."""
    values = [b.value for block in func.body.blocks for b in block.bindings]
    return [dict(v.attrs.items()) for v in values if isinstance(v, relax.Function)]


def test_patterns_of_others_are_offloaded_by_their_code_generator() -> None:
    theirs = Borrowed()
    with foreign_backend("theirs", patterns(), codegen=theirs):
        mod = OffloadBYOC()(partitioned(backends=("theirs",)))
    assert [module.kind for module in mod.attrs[EXTERNAL_MODS]] == ["collage.onednn"]
    assert [composites(func) for func in theirs.functions] == [
        [{"Composite": "theirs.dense_bias", "rows": 4}],
        [{"Composite": "theirs.relu"}],
    ]
    np.testing.assert_allclose(run(mod), expected(), rtol=1e-4)


def test_the_functions_are_those_of_the_stock_passes() -> None:
    ours = Borrowed()
    with foreign_backend("theirs", patterns(), codegen=ours):
        OffloadBYOC()(partitioned(backends=("theirs",)))
        merged = relax.transform.FuseOpsByPattern(patterns(), annotate_codegen=True)(Model)
    stock = {str(composites(f)[0]["Composite"]): f for f in merged.functions.values() if is_external(f)}
    assert len(stock) == len(ours.functions) == 2
    for func in ours.functions:
        theirs = stock[str(composites(func)[0]["Composite"])]
        tvm.ir.assert_structural_equal(unnamed(func), unnamed(theirs))


def is_external(func: tvm.ir.BaseFunc) -> bool:
    return "Codegen" in (func.attrs or {})


def unnamed(func: relax.Function) -> relax.Function:
    return func.without_attr("global_symbol")


def test_constants_are_handed_over_by_name() -> None:
    theirs = Borrowed()
    with foreign_backend("theirs", patterns(), codegen=theirs):
        mod = OffloadBYOC()(partitioned(backends=("theirs",)))
    (name,) = theirs.constants
    np.testing.assert_array_equal(mod.attrs[CONSTANTS][name].numpy(), WEIGHTS)


def test_stock_run_codegen_takes_over_bridged_functions() -> None:
    with foreign_backend("theirs", patterns(), codegen=Borrowed()), uc.host_target():
        mod = relax.transform.RunCodegen()(partitioned(backends=("theirs",)))
    np.testing.assert_allclose(run(mod), expected(), rtol=1e-4)


def test_predicates_of_others_are_offloaded() -> None:
    theirs = Borrowed()
    with foreign_backend("theirs", predicates={"relax.nn.relu": lambda _call: True}, codegen=theirs):
        mod = OffloadBYOC()(partitioned(backends=("theirs",)))
    assert [composites(func) for func in theirs.functions] == [[{"Composite": "theirs.relu"}]]
    np.testing.assert_allclose(run(mod), expected(), rtol=1e-4)


def test_a_rule_of_the_callers_for_a_code_generator_in_tvm() -> None:
    rule = OpPredicate("mine", frozenset({"relax.exp"}), lambda _call: None)
    spec = PartitionSpec("mine", uc.host_target(), rule, "theirs")
    theirs = Borrowed()
    with foreign_backend("theirs", codegen=theirs):
        mod = OffloadBYOC()(partitioned(backends=(), specs=(spec,)))
    assert [composites(func) for func in theirs.functions] == [[{"Composite": "theirs.exp"}]]
    np.testing.assert_allclose(run(mod), expected(), rtol=1e-4)


def test_functions_for_a_code_generator_that_is_not_there_are_left_alone() -> None:
    with foreign_backend("theirs", patterns(), codegen=Borrowed()):
        mod = partitioned(backends=("theirs",))
    with foreign_backend("theirs", patterns()):
        tvm.ir.assert_structural_equal(OffloadBYOC()(mod), mod)


@pytest.mark.parametrize("name", ["theirs.dense_bias", "theirs.relu"])
def test_the_attributes_survive_where_the_table_is_gone(name: str) -> None:
    """The attributes that a pattern gives its match are in the workload, so a worker process needs no pattern."""
    from unity_collage.annotations import CANDIDATES
    from unity_collage.cost.asking import workloads
    from unity_collage.lowering.outlined import external_function

    with foreign_backend("theirs", patterns(), codegen=Borrowed()), uc.host_target():
        func = AnnotateCandidates(backends=("theirs",))(Model)["main"]
        asked = workloads(func, FixedCost())
    labels = {c.id: f"{c.backend}.{c.label}" for c in CANDIDATES.read(func)}
    (workload,) = [asked[i] for i, label in labels.items() if label == name]
    (attrs,) = composites(external_function(workload.func, "theirs", "candidate", "candidate"))
    assert attrs["Composite"] == name and ("rows" in attrs) == (name == "theirs.dense_bias")


def test_tvms_own_flow_makes_kernels_of_onednn() -> None:
    """``partition_for_onednn``, then nothing but passes of TVM: RunCodegen and ``relax.build``."""
    assert "onednn" in uc.backends.register_relax_ext()
    partitioned = uc.partition_for_onednn(Model, uc.host_target())
    functions = [func for func in partitioned.functions.values() if "Codegen" in (func.attrs or {})]
    assert functions and {str(func.attrs["Codegen"]) for func in functions} == {"onednn"}
    with uc.host_target():
        generated = relax.transform.RunCodegen()(partitioned)
        assert [str(module.kind) for module in generated.attrs[EXTERNAL_MODS]] == ["collage.onednn"]
        machine = relax.VirtualMachine(relax.build(generated, uc.host_target()), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(X), tvm.runtime.tensor(BIAS)).numpy()
    np.testing.assert_allclose(found, np.exp(np.maximum(X @ WEIGHTS + BIAS, 0)), rtol=1e-4)


def test_a_backend_without_a_code_generator_partitions_nothing() -> None:
    with pytest.raises(CollageError, match="tvm has no code generator: TVM makes its kernels"):
        uc.partition_for(Model, "tvm")
    with pytest.raises(UnknownBackend, match="no backend named 'mkl'"):
        uc.partition_for(Model, "mkl")
