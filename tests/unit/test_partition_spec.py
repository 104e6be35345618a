"""Partition specs: the backend and the target of a rule, and what a spec may not propose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, DECLINED, PLAN
from unity_collage.cost.model import CostModel, Workload
from unity_collage.errors import CollageError, UnavailableBackend, UnknownBackend
from unity_collage.graph import DataflowGraph, index_set
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.costs import Cost
from unity_collage.rules import Declined, Found, FusionCone, OpPredicate, Rule
from unity_collage.specs import PartitionSpec, gathered, targets_of
from unity_collage.target import conveyed, devices_of, is_refinement_of, text_of, why_not_refined
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

PLAIN = Target("llvm")
WIDE = Target({"kind": "llvm", "mcpu": "skylake-avx512"})
TOY = fake_backend("toy", "relax.nn.relu")


@I.ir_module
class OneDevice:
    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            R.output(b)
        return b


@I.ir_module
class TwoDevices:
    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm"), I.vdevice({"kind": "llvm", "mcpu": "skylake-avx512"})]}
    )

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")) -> R.Tensor((4, 16), "float32", "llvm:1"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.to_vdevice(a, "llvm:1")
            c = R.nn.relu(b)
            R.output(c)
        return c


def relu_rule(_target: Target | None = None) -> Rule:
    return OpPredicate("typed", frozenset({"relax.nn.relu"}), _nothing_against)


def _nothing_against(_call: relax.Call) -> None:
    return None


def annotated(mod: IRModule, current: Target = PLAIN, **options) -> relax.Function:
    with only_backends(TOY), current:
        return AnnotateCandidates(**options)(mod)["main"]


def test_specs_are_values() -> None:
    spec = PartitionSpec("mine", Target("llvm"), relu_rule(), "toy")
    same = PartitionSpec("mine", Target("llvm"), relu_rule(), "toy")
    assert spec == same and hash(spec) == hash(same) and "mine" in repr(spec)
    assert spec != replace(spec, target=WIDE)
    assert spec != replace(spec, backend="tvm")
    assert spec != replace(spec, rule=FusionCone())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"libs": ["onednn"]}, None),
        ({"keys": ["cpu", "special"]}, None),
        ({"mcpu": "skylake-avx512"}, "they differ in mcpu"),
        ({"num-cores": 2}, "they differ in num-cores"),
    ],
)
def test_a_target_refines_another_that_differs_in_the_toolchain_only(
    fields: dict, reason: str | None
) -> None:
    why = why_not_refined(Target({"kind": "llvm", **fields}), PLAIN)
    assert why is None if reason is None else why is not None and reason in why


def test_a_reason_names_both_targets() -> None:
    why = why_not_refined(WIDE, PLAIN)
    assert why is not None and text_of(WIDE) in why and text_of(PLAIN) in why


def test_a_spec_for_another_target_is_declined() -> None:
    spec = PartitionSpec("mine", WIDE, relu_rule(), "toy")
    func = annotated(OneDevice, backends=("tvm",), specs=(spec,))
    assert {c.backend for c in CANDIDATES.read(func)} == {"tvm"}
    assert [(r.backend, r.index, r.reason) for r in DECLINED.read(func)] == [
        ("toy", 0, why_not_refined(WIDE, PLAIN))
    ]


def test_a_spec_for_the_same_machine_with_other_tools_is_taken() -> None:
    spec = PartitionSpec("mine", Target({"kind": "llvm", "libs": ["toy"]}), relu_rule(), "toy")
    func = annotated(OneDevice, backends=(), specs=(spec,))
    assert [(c.backend, c.rule, c.indexes) for c in CANDIDATES.read(func)] == [
        ("toy", "typed", (0,)),
        ("tvm", "cone", (1,)),
    ]


def test_a_spec_of_several_targets_is_asked_once_and_serves_all() -> None:
    asked: list[str] = []

    def why_not(_call: relax.Call) -> str | None:
        asked.append(str(Target.current()))
        return None

    rule = OpPredicate("typed", frozenset({"relax.nn.relu"}), why_not)
    spec = PartitionSpec("mine", [WIDE, Target({"kind": "llvm", "libs": ["toy"]})], rule, "toy")
    func = annotated(OneDevice, backends=(), specs=(spec,))
    assert asked == [str(WIDE)]
    assert next((c.backend, c.rule, c.indexes) for c in CANDIDATES.read(func)) == ("toy", "typed", (0,))
    assert spec != replace(spec, target=WIDE) and spec.targets[0] is WIDE
    with pytest.raises(CollageError, match="the partition spec 'mine' names no target"):
        replace(spec, target=[])


def test_the_target_is_in_scope_while_a_rule_is_asked() -> None:
    seen: list[str] = []

    def why_not(_call: relax.Call) -> str | None:
        seen.append(str(Target.current()))
        return None

    target = Target({"kind": "llvm", "libs": ["toy"]})
    spec = PartitionSpec("mine", target, OpPredicate("typed", frozenset({"relax.nn.relu"}), why_not), "toy")
    annotated(OneDevice, backends=(), specs=(spec,))
    assert seen == [str(target)]


def test_every_device_of_the_targets_kind_has_its_specs() -> None:
    graph = DataflowGraph(TwoDevices["main"])
    with only_backends(TOY):
        specs = gathered((TOY,), (), graph, PLAIN)
    assert [str(spec.target) for spec in specs] == [str(target) for target in targets_of(graph, PLAIN)]
    assert any(spec.target.attrs.get("mcpu") == "skylake-avx512" for spec in specs)
    func = annotated(TwoDevices)
    assert [c.indexes for c in CANDIDATES.read(func) if c.backend == "toy"] == [(0,), (2,)]


def test_no_candidate_spans_two_targets() -> None:
    func = annotated(TwoDevices)
    graph = DataflowGraph(func)
    for candidate in CANDIDATES.read(func):
        devices = [str(device) for i in candidate.indexes for device in devices_of(graph.nodes[i].var.ty)]
        assert len(set(devices)) == 1


def test_defect_3_one_cost_for_two_targets() -> None:
    """Ancestor defect 3: equality ignores the target, and one cost cache entry serves two targets."""
    with only_backends(TOY), PLAIN:
        func = EstimateCosts(ByTarget())(AnnotateCandidates(("toy",))(TwoDevices))["main"]
    costs = COSTS.read(func)
    asked = {c.indexes: costs.by_key[costs.keys[c.id]] for c in CANDIDATES.read(func) if c.backend == "toy"}
    assert {indexes: cost.seconds for indexes, cost in asked.items()} == {(0,): 2.0, (2,): 1.0}


def test_defect_3_one_cost_for_two_backends() -> None:
    other = fake_backend("other", "relax.nn.relu")
    with only_backends(TOY, other), PLAIN:
        func = AnnotateCandidates()(OneDevice)
        func = EstimateCosts(FixedCost({"toy": 2.0, "other": 3.0}))(func)["main"]
    costs = COSTS.read(func)
    relus = [c for c in CANDIDATES.read(func) if c.indexes == (0,)]
    assert {c.backend: costs.by_key[costs.keys[c.id]].seconds for c in relus} == {
        "toy": 2.0,
        "other": 3.0,
        "tvm": 1.0,
    }


@dataclass(frozen=True)
class ByTarget(CostModel):
    """Costs by the target of a kernel: half on the wide processor."""

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: Cost(self._seconds(workload)) for workload in workloads}

    def _seconds(self, workload: Workload) -> float:
        return 1.0 if "skylake-avx512" in workload.target else 2.0


def test_virtual_devices_survive_the_passes() -> None:
    line = [AnnotateCandidates(), EstimateCosts(FixedCost({"toy": 0.5})), SearchPartition()]
    with only_backends(TOY), PLAIN:
        mod = tvm.transform.Sequential(line)(TwoDevices)
    assert [str(device) for device in mod.global_infos["vdevice"]] == [
        str(device) for device in TwoDevices.global_infos["vdevice"]
    ]
    assert {kernel.backend for kernel in PLAN.read(mod["main"]).kernels} == {"toy"}
    outlined = [f for f in mod.functions.values() if "Codegen" in (f.attrs or {})]
    assert len(outlined) == 2


@I.ir_module
class ByHand:
    """The operand of a kernel is on another device, which only a mistake makes so."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")) -> R.Tensor((4, 16), "float32", "llvm:1"):
        with R.dataflow():
            a: R.Tensor((4, 16), "float32", "llvm:0") = R.nn.relu(x)
            b = R.call_dps_packed("move", (a,), out_ty=R.Tensor((4, 16), "float32", "llvm:1"))
            c = R.nn.relu(b)
            R.output(c)
        return c


@dataclass(frozen=True)
class Everything(Rule):
    """Proposes the whole function."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        yield Found(index_set(range(len(graph.nodes))), "everything", "all")


def test_a_candidate_on_two_devices_is_declined() -> None:
    spec = PartitionSpec("mine", PLAIN, Everything(), "toy")
    func = annotated(ByHand, backends=(), specs=(spec,))
    assert {c.indexes for c in CANDIDATES.read(func) if c.backend == "toy"} == set()
    reason = "a kernel runs on one device, and a is on llvm:0, b on llvm:1"
    assert [(r.index, r.reason, r.condition) for r in DECLINED.read(func) if r.backend == "toy"] == [
        (2, reason, "device")
    ]


def test_a_device_that_names_backends_gets_kernels_of_these_alone() -> None:
    mod = tvm.script.from_source(TwoDevices.script().replace('"mcpu": "skylake-avx512"', '"libs": ["toy"]'))
    other = fake_backend("other", "relax.nn.relu")
    with only_backends(TOY, other), Target({"kind": "llvm", "mtriple": str(PLAIN.attrs["mtriple"])}):
        func = AnnotateCandidates()(mod)["main"]
    found = {(c.backend, c.indexes) for c in CANDIDATES.read(func)}
    assert found == {("toy", (0,)), ("other", (0,)), ("tvm", (0,)), ("toy", (2,))}


ONEDNN = Target({"kind": "llvm", "libs": ["onednn", "openblas"]})
KERNELS = Target({"kind": "llvm", "libs": ["kernels"]})


@pytest.mark.parametrize(
    ("targets", "base", "backends"),
    [
        ([PLAIN], PLAIN, None),
        ([ONEDNN, PLAIN], PLAIN, ("onednn", "openblas", "tvm")),
        ([PLAIN, KERNELS], PLAIN, ("tvm", "kernels")),
        ([ONEDNN, KERNELS], PLAIN, ("onednn", "openblas", "kernels")),
        ([ONEDNN], PLAIN, ("onednn", "openblas")),
    ],
)
def test_targets_convey_backends(
    targets: list[Target], base: Target, backends: tuple[str, ...] | None
) -> None:
    found, names = conveyed(targets)
    assert (str(found), names) == (str(base), backends)


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        ([], "no target was given"),
        ([PLAIN, PLAIN], "was given twice"),
        ([PLAIN, WIDE], "they differ in mcpu.*, and no value has a virtual device with it"),
    ],
)
def test_lists_of_targets_that_contradict_themselves_are_refused(targets: list[Target], reason: str) -> None:
    with pytest.raises(CollageError, match=reason):
        conveyed(targets)


def test_targets_of_virtual_devices_may_be_in_a_list() -> None:
    assert conveyed([PLAIN, WIDE], [PLAIN, WIDE]) == (PLAIN, None)


@pytest.mark.parametrize(
    ("one", "other", "refines"),
    [
        (ONEDNN, PLAIN, True),
        (PLAIN, ONEDNN, False),
        (ONEDNN, KERNELS, False),
        (PLAIN, PLAIN, False),
        (ONEDNN, WIDE, False),
    ],
)
def test_a_target_with_backends_refines_one_without(one: Target, other: Target, refines: bool) -> None:
    assert is_refinement_of(one, other) is refines


def test_two_specs_of_one_name_name_both_origins() -> None:
    spec = PartitionSpec("toy", PLAIN, relu_rule(), "toy")
    expected = "two partition specs are named 'toy': one given by the caller, one that of backend toy"
    with pytest.raises(CollageError, match=expected):
        annotated(OneDevice, specs=(spec,))
    with pytest.raises(CollageError, match="one given by the caller, one given by the caller too"):
        annotated(OneDevice, backends=(), specs=(spec, spec))


def test_the_backend_of_a_spec_must_exist_and_be_available() -> None:
    spec = PartitionSpec("mine", PLAIN, relu_rule(), "nobody")
    with pytest.raises(UnknownBackend, match="no backend named 'nobody'; there are: toy, tvm"):
        annotated(OneDevice, specs=(spec,))
    gone = replace(TOY, why_unavailable=lambda: "its library is missing")
    with only_backends(gone), PLAIN, pytest.raises(UnavailableBackend, match="its library is missing"):
        AnnotateCandidates(("tvm",), specs=(replace(spec, backend="toy"),))(OneDevice)


def test_two_rules_of_one_backend_over_the_same_nodes_both_stay() -> None:
    """Ancestor defect 2: two candidates of one target over the same nodes prune each other."""
    spec = PartitionSpec("mine", PLAIN, relu_rule(), "toy")
    func = annotated(OneDevice, specs=(spec,))
    found = [c for c in CANDIDATES.read(func) if c.backend == "toy"]
    assert [(c.rule, c.indexes) for c in found] == [("typed", (0,)), ("fake", (0,))]


def test_defect_2_both_candidates_over_the_same_nodes_are_measured_and_one_is_chosen() -> None:
    parts = (("toy.relu_fast", (0,)),)
    plain = Candidate(0, "toy", "typed", "slow", (0,))
    fast = Candidate(1, "toy", "typed", "fast", (0,), composites=parts)
    rest = Candidate(2, "tvm", "typed", "exp", (1,))
    func = CANDIDATES.write(OneDevice["main"], (plain, fast, rest))
    model = FixedCost({"toy:slow": 2.0, "toy:fast": 0.5})
    with only_backends(TOY), PLAIN:
        costed = EstimateCosts(model)(IRModule({"main": func}))
        costs = COSTS.read(costed["main"])
        plan = PLAN.read(SearchPartition()(costed)["main"])
    assert [costs.by_key[costs.keys[i]].seconds for i in (0, 1)] == [2.0, 0.5]
    assert [kernel.label for kernel in plan.kernels] == ["fast", "exp"]


def test_equal_proposals_of_two_specs_are_one_candidate() -> None:
    specs = tuple(PartitionSpec(name, PLAIN, relu_rule(), "toy") for name in ("mine", "yours"))
    found = CANDIDATES.read(annotated(OneDevice, backends=(), specs=specs))
    assert [(c.backend, c.indexes) for c in found] == [("toy", (0,)), ("tvm", (1,))]
