"""Why this kernel, why not that one: as data, and in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tvm
from hypothesis import given, settings
from rich.console import Console
from search_problems import problems
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, DECLINED, EXPLANATION, PLAN
from unity_collage.errors import CollageError
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.plan.candidate import Candidate, DeclinedBinding
from unity_collage.plan.comparison import Prediction, ProgramComparison, ProgramTimes
from unity_collage.plan.costs import Cost, Costs
from unity_collage.plan.encoding import decode, encode
from unity_collage.plan.explanation import Explanation, Verdict
from unity_collage.plan.plan import Plan, RunnerUp
from unity_collage.plan.regrets import explanation_of
from unity_collage.report.answer import answer
from unity_collage.report.kinds import explanation_summary
from unity_collage.report.lookup import find
from unity_collage.report.words import chances, why_it_won
from unity_collage.search import NoCover, Problem, best_throughs, best_withouts, cheapest_cover
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu", "relax.add", why_not={"relax.exp": "toy has no exp"})


def chain(*ops: object) -> relax.Function:
    """``x`` (2 x 4) through ``ops``, one after the other."""
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for op in ops[:-1]:
                value = builder.emit(op(value))
            value = builder.emit_output(ops[-1](value))
        builder.emit_func_output(value)
    return builder.get()["main"]


def explained(func: relax.Function, model: FixedCost) -> Explanation:
    line = [AnnotateCandidates(), EstimateCosts(model), SearchPartition(explain=True)]
    with only_backends(TOY), Target("llvm"):
        return EXPLANATION.read(tvm.transform.Sequential(line)(IRModule({"main": func}))["main"])


MODEL = FixedCost({"toy": 3.0, "tvm": 4.0, "tvm:relu+exp": 8.5, "toy:add": "it crashed"}, launch=1.0)


@pytest.fixture(scope="module")
def relu_exp() -> Explanation:
    """``lv = relu(x); gv = exp(lv)``: toy relu (3) and tvm exp (4), each with a launch of 1."""
    return explained(chain(R.nn.relu, R.exp), MODEL)


def bid_of(explanation: Explanation, backend: str, label: str):
    return next(bid for bid in explanation.candidates if (bid.backend, bid.label) == (backend, label))


def test_every_candidate_has_its_verdict_and_its_regret(relu_exp: Explanation) -> None:
    verdicts = {(b.backend, b.label): (b.verdict, b.best_through, b.regret) for b in relu_exp.candidates}
    assert verdicts == {
        ("toy", "relu"): (Verdict.CHOSEN, 9.0, 0.0),
        ("tvm", "exp"): (Verdict.CHOSEN, 9.0, 0.0),
        ("tvm", "relu+exp"): (Verdict.RUNNER_UP, 9.5, 0.5),
        ("tvm", "relu"): (Verdict.COSTS_MORE, 10.0, 1.0),
    }


def test_a_cost_must_fall_by_its_regret_to_win(relu_exp: Explanation) -> None:
    assert bid_of(relu_exp, "tvm", "relu").saved == 0.25
    assert chances(bid_of(relu_exp, "tvm", "relu")) == "would win if 25.0% faster"
    assert chances(bid_of(relu_exp, "tvm", "relu+exp")) == "would win if 5.9% faster"
    cheaper = explained(chain(R.nn.relu, R.exp), replace(MODEL, seconds={**MODEL.seconds, "tvm:relu": 2.9}))
    assert bid_of(cheaper, "tvm", "relu").verdict is Verdict.CHOSEN


def test_what_is_more_expensive_by_more_than_its_cost_cannot_win() -> None:
    found = explained(chain(R.nn.relu, R.exp), FixedCost({"toy": 9.0, "tvm": 4.0, "tvm:relu+exp": 0.5}))
    assert chances(bid_of(found, "toy", "relu")) == "cannot win even at no cost"


def test_the_kernels_know_whom_they_read_and_who_comes_next(relu_exp: Explanation) -> None:
    relu, exp = relu_exp.kernels
    assert (relu.reads, exp.reads) == ((), (0,))
    assert (relu.inputs, exp.inputs) == ((), (0,))
    both, alone = bid_of(relu_exp, "tvm", "relu+exp").id, bid_of(relu_exp, "tvm", "relu").id
    assert relu.rivals == (both, alone)
    assert exp.rivals == (both,)
    assert (relu.runner_up, relu.margin, relu.exact) == (both, 0.5, True)


def test_who_declined_is_grouped_by_reason() -> None:
    found = explained(chain(R.exp, R.nn.relu, R.exp), MODEL)
    assert [(d.backend, d.reason, d.condition) for d in found.declined] == [
        ("toy", "toy has no exp", "predicate")
    ]
    assert found.names(found.declined[0].bindings) == "lv, gv"


def test_a_candidate_without_a_cost_keeps_its_reason() -> None:
    found = explained(chain(lambda x: R.add(x, x)), MODEL)
    crashed = bid_of(found, "toy", "add")
    assert (crashed.verdict, crashed.regret) == (Verdict.NO_COST, None)
    assert answer({"main": found}, "gv")[3] == "Never in: toy add: no cost, it crashed."


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("at least 2 s", "not measured, at least 2 s"),
        ("not measured: it was stopped", "not measured: it was stopped"),
    ],
)
def test_what_was_not_measured_is_told_from_what_has_no_cost(reason: str, told: str) -> None:
    func = chain(R.nn.relu)
    some = (Candidate(0, "tvm", "typed", "relu", (0,)), Candidate(1, "toy", "typed", "relu", (0,)))
    costs = Costs({"a": Cost(1.0, 1.0, 1.0), "b": Cost(None, reason=reason, bound=2.0)}, {0: "a", 1: "b"})
    typed = COSTS.write(CANDIDATES.write(func, some), costs)
    with only_backends(TOY):
        mod = SearchPartition(explain=True)(IRModule({"main": typed}))
    found = EXPLANATION.read(mod["main"])
    assert [bid.verdict for bid in found.candidates] == [Verdict.CHOSEN, Verdict.NOT_MEASURED]
    assert f"toy relu: {told}" in answer({"main": found}, "gv")[3]


def test_the_condition_of_a_refusal_travels_in_the_script() -> None:
    func = chain(R.nn.relu)
    refusals = (
        DeclinedBinding("toy", 0, "tap: lv is read outside", "validity"),
        DeclinedBinding("toy", 0, "no"),
    )
    mod = IRModule({"main": DECLINED.write(func, refusals)})
    again = tvm.script.from_source(mod.script(show_meta=True))
    assert DECLINED.read(again["main"]) == refusals


def test_an_explanation_is_the_same_after_json_and_after_the_script(relu_exp: Explanation) -> None:
    assert decode(Explanation, json.loads(json.dumps(encode(relu_exp)))) == relu_exp
    func = EXPLANATION.write(chain(R.nn.relu), relu_exp)
    again = tvm.script.from_source(IRModule({"main": func}).script(show_meta=True))
    assert EXPLANATION.read(again["main"]) == relu_exp


def test_a_plan_whose_programs_were_compared_is_the_same_after_json() -> None:
    programs = (ProgramTimes("ours", 1e-3, (1e-3, 2e-3)), ProgramTimes("greedy", reason="it failed"))
    plan = Plan(comparison=ProgramComparison("ours", programs, (Prediction("ours", 9e-4, 1e-3),)))
    assert decode(Plan, json.loads(json.dumps(encode(plan)))) == plan


def test_without_explain_there_is_none_and_the_plan_names_no_runner_up() -> None:
    line = [AnnotateCandidates(), EstimateCosts(MODEL)]
    with only_backends(TOY), Target("llvm"):
        typed = tvm.transform.Sequential(line)(IRModule({"main": chain(R.nn.relu, R.exp)}))
        plain, told = (SearchPartition(explain=flag)(typed)["main"] for flag in (False, True))
    assert not EXPLANATION.on(plain) and PLAN.read(plain).kernels[0].runner_up is None
    assert PLAN.read(told).kernels[0].runner_up == RunnerUp(
        "tvm", "relu+exp", ("lv", "gv"), seconds=8.5, regret=0.5, exact=True
    )


@given(problems())
@settings(max_examples=300, deadline=None)
def test_regrets_and_margins_are_what_a_search_without_the_kernel_finds(problem: Problem) -> None:
    try:
        solution = cheapest_cover(problem)
    except NoCover:
        return
    graph, candidates, costs = typed(problem)
    throughs, withouts = best_throughs(problem, solution.seconds), best_withouts(problem, solution)
    found = explanation_of(graph, problem, solution, candidates, costs, throughs, withouts)
    for kernel in found.kernels:
        rest = tuple(option for option in problem.options if option.id != kernel.candidate)
        try:
            without = cheapest_cover(replace(problem, options=rest)).seconds - solution.seconds
        except NoCover:
            without = float("inf")
        assert kernel.exact
        assert without == (float("inf") if kernel.margin is None else pytest.approx(kernel.margin))
        if kernel.runner_up is not None:
            assert found.by_id[kernel.runner_up].regret <= kernel.margin + 1e-9


def typed(problem: Problem):
    """A function with as many bindings as ``problem`` has nodes, and its options as candidates."""
    from unity_collage.graph import DataflowGraph
    from unity_collage.index_set import members

    graph = DataflowGraph(chain(*[R.exp] * len(problem)))
    candidates = [
        Candidate(o.id, o.backend, "typed", f"k{o.id}", tuple(members(o.inside)), tuple(members(o.hidden)))
        for o in problem.options
    ]
    costs = {str(o.id): Cost(o.seconds, o.seconds, o.seconds, 1) for o in problem.options}
    return (
        graph,
        candidates,
        Costs(costs, {o.id: str(o.id) for o in problem.options}, problem.launch_seconds),
    )


def test_five_lines_answer_for_one_binding(relu_exp: Explanation) -> None:
    assert answer({"main": relu_exp}, "lv") == [
        "lv (relu) is in toy relu (lv): 3.00 s, 33.3% of main",
        "Why: the best plan without it has tvm relu+exp (lv, gv) and costs 500 ms more; it keeps its place until it is "
        "16.7% more expensive.",
        "Why not: tvm relu+exp 8.50 s would win if 5.9% faster; tvm relu 4.00 s would win if 25.0% faster.",
        "Never in: no backend declined it, and every candidate has a cost.",
        "Proof: the whole plan costs 9.00 s, and no valid plan is cheaper (exact search).",
    ]


def test_why_it_won_says_by_how_much() -> None:
    found = explained(chain(R.nn.relu), FixedCost({"toy": 3.0, "tvm": 4.5}))
    assert why_it_won(found, found.kernels[0]) == (
        "the best plan without it has tvm relu (gv) and costs 1.50 s more; "
        "it keeps its place until it is 50.0% more expensive"
    )


def test_a_difference_within_the_intervals_is_called_noise() -> None:
    func = chain(R.nn.relu)
    some = (Candidate(0, "tvm", "typed", "relu", (0,)), Candidate(1, "toy", "typed", "relu", (0,)))
    costs = Costs({"a": Cost(1.0, 0.9, 1.1, 9), "b": Cost(1.2, 1.05, 1.4, 9)}, {0: "a", 1: "b"})
    with only_backends(TOY):
        mod = SearchPartition(explain=True)(
            IRModule({"main": COSTS.write(CANDIDATES.write(func, some), costs)})
        )
    found = EXPLANATION.read(mod["main"])
    assert found.by_id[1].within_noise
    assert (
        "would win if 16.7% faster, a tie as far as the measurements tell" in answer({"main": found}, "gv")[2]
    )


def test_what_nobody_has_a_cost_for_is_said_to_be_left_out_of_the_cost() -> None:
    found = explained(chain(R.nn.relu, R.exp), FixedCost({"toy": 1.0, "tvm": "no compiler"}))
    first, *_, last = answer({"main": found}, "exp")
    assert first == "gv (exp) is in no kernel: no backend has a cost for it, TVM compiles it as it is"
    assert last.startswith("Proof: the whole plan costs 1.00 s (besides 1 binding without a cost), and")


def test_a_view_is_in_no_kernel() -> None:
    fused = dict.fromkeys(("tvm:relu+reshape+exp", "tvm:relu+reshape", "tvm:reshape+exp"), 9.0)
    found = explained(chain(R.nn.relu, lambda x: R.reshape(x, (4, 2)), R.exp), FixedCost(fused))
    first, second, *_ = answer({"main": found}, "reshape")
    assert first == "lv1 (reshape) is in no kernel: the VM evaluates it for free"
    assert second == "Why: a binding in no kernel costs nothing."


def test_a_plan_of_views_alone_costs_nothing_and_is_explained() -> None:
    found = explained(chain(R.permute_dims, R.permute_dims), FixedCost({"tvm": 1.0}))
    assert found.proof.seconds == 0.0 and len(found.kernels) == 1
    assert "0 ns, 0.0% of main" in answer({"main": found}, "gv")[0]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("lv7", "no binding, kernel or operator is called 'lv7'; did you mean lv"),
        ("exp", "'exp' is 2 bindings, name one of them: lv1, gv"),
        ("relax.exp", "'relax.exp' is 2 bindings, name one of them: lv1, gv"),
        ("zzzz", "no binding, kernel or operator is called 'zzzz'"),
    ],
)
def test_a_name_that_is_none_or_several_is_one_clear_line(name: str, line: str) -> None:
    found = explained(chain(R.nn.relu, R.exp, R.exp), MODEL)
    with pytest.raises(CollageError) as error:
        answer({"main": found}, name)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_a_kernel_its_function_and_an_only_operator_are_names_too(relu_exp: Explanation) -> None:
    told = {"main": relu_exp}
    for name in ("lv", "main:lv", "relu", "relax.nn.relu", "fused_relu_toy"):
        assert answer(told, name)[0].startswith("lv (relu)")


def test_bindings_of_two_functions_are_told_apart(relu_exp: Explanation) -> None:
    told = {"main": relu_exp, "other": relu_exp}
    with pytest.raises(CollageError, match="name one of them: main:lv, other:lv"):
        find(told, "lv")
    assert find(told, "other:lv")[0].function == "other"


def test_what_a_name_may_mean_comes_after_what_it_is(relu_exp: Explanation) -> None:
    lines = answer({"main": relu_exp}, "/conv/out", ["gone", "lv", "gv"])
    assert lines[0].startswith("/conv/out, now lv (relu) is in toy relu")


def test_equal_names_are_told_apart_as_the_script_does() -> None:
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    same = [relax.DataflowVar("lv", x.ty) for _ in range(2)]
    out = relax.Var("lv", x.ty)
    values = [x, *same, out]
    steps = [relax.BlockBuilder().normalize(R.exp(source)) for source in values[:-1]]
    bindings = [relax.VarBinding(var, step) for var, step in zip(values[1:], steps, strict=True)]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], out)
    func = relax.BlockBuilder().normalize(relax.Function([x], body, x.ty))
    found = explained(func, FixedCost())
    assert [binding.name for binding in found.bindings] == ["lv", "lv_1", "lv_2"]
    assert all(f"{name}: R.Tensor" in func.script() for name in ("lv", "lv_1", "lv_2"))


def test_the_summary_groups_equal_kernels_on_80_columns() -> None:
    ops = [R.nn.relu, R.exp, R.nn.relu, R.exp, R.nn.relu]
    found = explained(chain(*ops), FixedCost({"toy": 1e-6, "tvm:exp": 2e-6}, default=1e-3))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(explanation_summary("main", found))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[:2] == [
        f"main: 5 kernels out of {len(found.candidates)} candidates",
        "The whole plan costs 7.00 us, and no valid plan is cheaper (exact search).",
    ]
    assert [line.split()[:6] for line in lines[4:6]] == [
        ["exp", "lv1", "tvm", "2", "4.00", "us"],
        ["relu", "lv", "toy", "3", "3.00", "us"],
    ]
