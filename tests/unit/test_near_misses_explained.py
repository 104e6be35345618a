"""Near misses from Prepare to the answer about one binding, and what does not see them."""

from __future__ import annotations

import pytest
import tvm
from prepare_checks import module, plain
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import EXPLANATION, UNRECOGNISED
from unity_collage.graph import DataflowGraph, Signatures, SubGraph, index_set
from unity_collage.graph.extract import extract
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.passes.prepare import Prepare
from unity_collage.plan.encoding import decode, encode
from unity_collage.plan.explanation import Explanation
from unity_collage.plan.near_misses import near_misses_of
from unity_collage.plan.unrecognised import Unrecognised
from unity_collage.report.answer import answer
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

EVERY = fake_backend(
    "every", *(f"relax.{name}" for name in ("multiply", "add", "erf", "exp", "tanh", "nn.relu"))
)


@R.function
def nearly_gelu(x: R.Tensor((2, 4), "float32")):
    with R.dataflow():
        first = R.exp(x)
        scaled = R.multiply(first, R.const(0.70710677))
        error = R.erf(scaled)
        more = R.add(error, R.const(1.0))
        product = R.multiply(first, more)
        nearly = R.multiply(product, R.const(0.4999))
        top = R.nn.relu(nearly)
        left = R.exp(top)
        right = R.tanh(top)
        y = R.add(left, right)
        R.output(y)
    return y


REASON = "the factor behind erf is 0.4999, not 0.5"


def partitioned(func: relax.Function, *passes: tvm.transform.Pass) -> IRModule:
    line = [
        *passes,
        AnnotateCandidates(),
        EstimateCosts(FixedCost({"every": 1.0})),
        SearchPartition(explain=True),
    ]
    with only_backends(EVERY), Target("llvm"):
        return tvm.transform.Sequential(line)(module(func))


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return EXPLANATION.read(partitioned(nearly_gelu, Prepare())["main"])


def line_about(explanation: Explanation, name: str) -> list[str]:
    """What follows the five lines that there always are."""
    return answer({"main": explanation}, name)[5:]


def test_the_binding_that_the_rule_left_says_why(explanation: Explanation) -> None:
    assert line_about(explanation, "nearly") == [f"Not rewritten: gelu_form looked at it: {REASON}."]


@pytest.mark.parametrize("name", ["scaled", "error", "more", "product", "top"])
def test_so_do_the_bindings_of_its_chain(explanation: Explanation, name: str) -> None:
    assert line_about(explanation, name) == [f"Not rewritten: gelu_form looked at nearly: {REASON}."]


@pytest.mark.parametrize("name", ["first", "left", "right", "y"])
def test_and_no_others(explanation: Explanation, name: str) -> None:
    assert line_about(explanation, name) == []


def test_without_near_misses_there_are_five_lines() -> None:
    found = EXPLANATION.read(partitioned(nearly_gelu)["main"])
    assert found.near_misses == () and len(answer({"main": found}, "nearly")) == 5


def test_near_misses_are_part_of_the_explanation_as_data(explanation: Explanation) -> None:
    data = encode(explanation)
    assert [miss["rule"] for miss in data["near_misses"]] == ["gelu_form"]
    assert decode(Explanation, data) == explanation


def test_the_search_removes_the_attribute_that_it_used() -> None:
    mod = partitioned(nearly_gelu, Prepare())
    assert not any(UNRECOGNISED.on(func) for func in mod.functions.values())


def test_kernels_do_not_see_it() -> None:
    said = Prepare()(module(nearly_gelu))
    unsaid = plain(said)
    assert UNRECOGNISED.on(said["main"]) and not UNRECOGNISED.on(unsaid["main"])
    subs = [
        SubGraph(graph := DataflowGraph(mod["main"]), index_set(range(len(graph)))) for mod in (said, unsaid)
    ]
    digests = [Signatures(sub.graph).digest(sub) for sub in subs]
    assert digests[0] == digests[1]
    tvm.ir.assert_structural_equal(*map(extract, subs))
    assert not UNRECOGNISED.on(extract(subs[0]))


def test_a_name_that_means_another_binding_by_now_is_left_out() -> None:
    graph = DataflowGraph(nearly_gelu)

    def kept(binding: str, op: str) -> int:
        return len(near_misses_of(graph, [Unrecognised("rule", binding, op, "reason")]))

    assert kept("error", "relax.erf") == 1
    assert kept("error", "relax.exp") == kept("gone", "relax.erf") == 0


def test_a_name_that_several_bindings_have_is_left_out() -> None:
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    inner, out = (kind("lv", x.ty) for kind in (relax.DataflowVar, relax.Var))
    calls = [relax.VarBinding(inner, relax.op.exp(x)), relax.VarBinding(out, relax.op.exp(inner))]
    body = relax.SeqExpr([relax.DataflowBlock(calls)], out)
    func = relax.BlockBuilder().normalize(relax.Function([x], body, x.ty))
    assert near_misses_of(DataflowGraph(func), [Unrecognised("rule", "lv", "relax.exp", "reason")]) == ()
