"""``unity-collage check FILE``: the plans in reports, in modules as text, and what forged ones are refused for."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.cli.main import main
from unity_collage.errors import CollageError, InvalidAnnotation
from unity_collage.graph import DataflowGraph
from unity_collage.inspection.stated_model import of_model
from unity_collage.inspection.statement import Statement
from unity_collage.passes import AnnotateCandidates, ApplyPlan, EstimateCosts, SearchPartition
from unity_collage.passes.search_partition import checked_for, stated_problem
from unity_collage.pipeline import Pipeline
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.check import checked, why_another_problem, why_malformed
from unity_collage.plan.costs import EXPECTED, UNKNOWN, Cost, Costs, SampleCosts
from unity_collage.plan.encoding import encode
from unity_collage.plan.instance import packed, unpacked
from unity_collage.plan.plan import Plan
from unity_collage.plan.posed import posed_samples, weighted_sum
from unity_collage.plan.problem import optimistic, problem_of
from unity_collage.plan.ranges import PlanAtSample
from unity_collage.plan.weighed import problem_at, weighed_costs
from unity_collage.program.facts import _packed, plans_in
from unity_collage.search import Problem
from unity_collage.search.auto import certified, solve
from unity_collage.search.certificate import Certificate, why_not
from unity_collage.target import host_target
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.tanh")


def costed(fused: float = 2.5) -> IRModule:
    """A module with costs: the library is faster by itself, TVM in one kernel of all three operators."""
    costs = FixedCost({"toy": 1.0, "tvm": 2.0, "tvm:relu+exp+tanh": fused}, launch=0.1)
    with only_backends(TOY), Target("llvm"):
        module = IRModule({"main": graphs.chain()})
        return tvm.transform.Sequential([AnnotateCandidates(), EstimateCosts(costs)])(module)


def searched(fused: float = 2.5, **options: Any) -> tuple[IRModule, IRModule, Plan]:
    """The module with costs, what the search makes of it, and the plan."""
    before = costed(fused)
    with only_backends(TOY), Target("llvm"):
        after = SearchPartition(**options)(before)
    return before, after, PLAN.read(after["main"])


def test_a_plan_carries_what_its_checker_needs() -> None:
    _, _, plan = searched()
    finding = checked(plan)
    assert finding.holds
    assert finding.text == "proved: 2600 ms, and no plan of its 9 candidates costs less"


def forged(change: Callable[[Plan], Plan]) -> str:
    before, _, plan = searched()
    finding = checked(change(plan), stated_problem(before["main"]))
    assert not finding.holds
    return finding.text


def certificate(plan: Plan) -> Certificate:
    assert plan.certificate is not None
    return plan.certificate


def with_costs(plan: Plan, seconds: float) -> Plan:
    """The plan that answers the same question with other costs of its candidates."""
    problem = unpacked(plan.problem)
    options = tuple(replace(option, seconds=seconds) for option in problem.options)
    return replace(plan, problem=packed(replace(problem, options=options)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: replace(p, certificate=None), "it was given, not searched"),
        (lambda p: replace(p, certificate=replace(p.certificate, proof=None)), "what is proved is nothing"),
        (lambda p: replace(p, proved=False), "the plan says proved: False, its certificate True"),
        (lambda p: replace(p, seconds=2.0), "the plan says 2.0 s, its certificate 2.6 s"),
        (lambda p: replace(p, kernels=()), "the kernels of the plan are not those of its certificate"),
        (
            lambda p: replace(p, kernels=(replace(p.kernels[0], backend="toy"),)),
            "the kernels of the plan are not",
        ),
        (
            lambda p: replace(p, kernels=(replace(p.kernels[0], interval=(0.1, 9.0)),)),
            "the kernels of the plan are not",
        ),
        (lambda p: replace(p, gap=0.5), "the gap of the plan is 0.0, not 0.5"),
        (lambda p: replace(p, more_than_cheapest=1.0), "it costs 0.0 s more than the cheapest plan, not 1.0"),
        (lambda p: replace(p, expected=1), "0 of its kernels have expected costs, not 1"),
        (lambda p: replace(p, launch_seconds=0.0), "its launches cost something else than those"),
        (lambda p: replace(p, launches={"tvm": 0.0}), "its launches cost something else than those"),
        (lambda p: replace(p, left_behind=("x",)), "0 bindings are in no kernel, not 1"),
        (lambda p: with_costs(p, 9.0), "the annotations state another problem: candidate 0 differs"),
        (
            lambda p: replace(p, problem=packed(replace(unpacked(p.problem), options=()))),
            "the annotations state another problem: candidate 0 differs",
        ),
        (
            lambda p: replace(p, problem=packed(replace(unpacked(p.problem), free=0b111))),
            "the annotations state another problem: free differ",
        ),
    ],
)
def test_a_forged_plan_is_refused(change: Callable[[Plan], Plan], reason: str) -> None:
    assert reason in forged(change)


def test_a_kernel_runs_on_the_device_of_its_candidate() -> None:
    _, _, plan = searched()
    problem = unpacked(plan.problem)
    options = tuple(replace(option, device="cpu:0") for option in problem.options)
    placed = replace(plan, problem=packed(replace(problem, options=options)))
    assert "runs on cpu:0, not on any device" in checked(placed).text
    there = tuple(replace(kernel, device="cpu:0") for kernel in plan.kernels)
    assert checked(replace(placed, kernels=there)).holds


def test_a_plan_that_is_only_said_to_be_proved_is_refused() -> None:
    """Of three kernels that cost 3.3 s, though one of 2.6 s exists, the certificate says so without a proof."""
    before, _, plan = searched()
    with only_backends(TOY), Target("llvm"):
        library = tuple(c.id for c in CANDIDATES.read(before["main"]) if c.backend == "toy")
        given = PLAN.read(ApplyPlan({"main": library}, origin="mine")(before)["main"])
    claim = Certificate(
        library, (), given.seconds, given.seconds, 0.0, True, "exact", proved_seconds=given.seconds
    )
    lie = replace(given, certificate=claim, proved=True, lower_bound=given.seconds, problem=plan.problem)
    assert given.seconds > plan.seconds
    assert "it is said to be proved, and what is proved is nothing" in checked(lie).text
    honest = replace(given, certificate=None, proved=False)
    assert checked(honest).text == "given, not searched: it claims no bound"


def test_a_plan_is_compared_with_the_annotations_whatever_else_it_claims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan of cheaper kernels holds by itself. It is not that of the annotations, also if it names variants."""
    before, _, _ = searched()
    _, _, cheaper = searched(1.0)
    path, annotated = tmp_path / "plan.json", tmp_path / "before.py"
    annotated.write_text(before.script(show_meta=True))
    path.write_text(json.dumps({"main": encode(replace(cheaper, variants={"other": {"n": 1}}))}))
    assert main(["check", str(path), "--annotated", str(annotated)]) == 1
    assert "the annotations state another problem" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda p: replace(p, at_samples=(PlanAtSample({"n": 1}, 1.0, p.seconds, p.problem),)),
            "the annotations state other samples, or other weights",
        ),
        (lambda p: replace(p, sizes={"n": 8}), "it is for the sizes {'n': 8}, and the function for {}"),
        (
            lambda p: replace(p, kernels=(replace(p.kernels[0], label="conv2d"),)),
            "is described otherwise than candidate",
        ),
        (
            lambda p: replace(p, kernels=(replace(p.kernels[0], threads=1),)),
            "has other threads than candidate",
        ),
    ],
)
def test_a_plan_of_another_function_is_refused(change: Callable[[Plan], Plan], reason: str) -> None:
    before, _, plan = searched()
    assert checked_for(before["main"], plan).holds
    assert reason in checked_for(before["main"], change(plan)).text


def test_a_given_plan_with_a_lower_bound_is_refused() -> None:
    _, _, plan = searched()
    given = replace(plan, certificate=None, proved=False)
    assert checked(given).text == "does not hold: it claims a lower bound, and has no certificate"


def test_a_plan_of_a_heuristic_is_searched_and_not_proved() -> None:
    """Greedy takes TVM's kernel of all, though three of the library cost 3.3 s."""
    _, _, plan = searched(5.0, algorithm="greedy")
    finding = checked(plan)
    assert finding.holds and not plan.proved
    assert finding.text.startswith("searched, not proved: 5100 ms for a valid plan of its 9 candidates")
    assert "it is proved that none costs less than 3200 ms" in finding.text


@pytest.mark.parametrize("suffix", [".json", ".py", ".txt"])
def test_the_command_says_a_line_for_each_plan(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after, plan = searched()
    path, annotated = tmp_path / f"plan{suffix}", tmp_path / "before.py"
    annotated.write_text(before.script(show_meta=True))
    text = json.dumps({"main": {**encode(plan), "explanation": {}}}) if suffix == ".json" else after.script()
    path.write_text(text)
    line = "main: proved: 2600 ms, and no plan of its 9 candidates costs less\n"
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == line
    assert main(["check", str(path), "--annotated", str(annotated)]) == 0
    assert capsys.readouterr().out == line


def compiled_from(model: FixedCost) -> tuple[IRModule, Pipeline, Plan]:
    """The model, the passes that compile it, and the plan."""
    mod, pipeline = (
        IRModule({"main": graphs.chain()}),
        Pipeline(backends=("toy", "tvm"), model=model, every=True),
    )
    with host_target():
        searched = tvm.transform.Sequential([*pipeline.until_costs(), pipeline.search()])(mod)
    return mod, pipeline, PLAN.read(searched["main"])


FASTER = FixedCost({"toy": 1.0, "tvm": 2.0, "tvm:relu+exp+tanh": 2.5}, launch=0.1)


def without_the_kernel(plan: Plan, stated: Statement) -> Plan:
    """The cheapest plan of the other candidates, as if the only kernel of ``plan`` were refused."""
    problem = unpacked(plan.problem)
    rest = tuple(option for option in problem.options if option.id != plan.kernels[0].candidate)
    problem = replace(problem, options=rest)
    lie = _with_certificate(plan, problem, certified(problem, solve(problem)))
    candidates = {candidate.id: candidate for candidate in CANDIDATES.read(stated.functions["main"])}
    kernels = tuple(
        replace(kernel, label=of.label, bindings=("name",) * len(of.indexes))
        for kernel in lie.kernels
        if (of := candidates[kernel.candidate])
    )
    return replace(lie, problem=packed(problem), kernels=kernels)


def of_other_bindings(plan: Plan) -> Plan:
    """The plan of a problem in which everything may be left behind."""
    problem = replace(unpacked(plan.problem), free=0b111)
    lie = _with_certificate(plan, problem, certified(problem, solve(problem)))
    return replace(lie, problem=packed(problem), left_behind=("a", "b", "c"))


def of_another_backend(plan: Plan) -> Plan:
    """The plan with its kernels by another backend."""
    problem = unpacked(plan.problem)
    options = tuple(replace(option, backend="toy") for option in problem.options)
    kernels = tuple(replace(kernel, backend="toy") for kernel in plan.kernels)
    return replace(plan, problem=packed(replace(problem, options=options)), kernels=kernels)


def test_a_plan_is_compared_with_the_candidates_of_its_model() -> None:
    with only_backends(TOY):
        mod, pipeline, plan = compiled_from(FASTER)
        stated = of_model(mod, "m.onnx", pipeline, {"main": plan})
        assert stated.checked("main", plan).text.endswith("; its candidates are those of the model")
        fewer = stated.checked("main", without_the_kernel(plan, stated)).text
        assert fewer.endswith("those of the model, and it leaves out 1 for which it has no cost")
        for change, reason in (
            (of_other_bindings, "other bindings may be left behind"),
            (of_another_backend, "candidate 3 is tvm "),
        ):
            assert checked(change(plan)).holds
            assert f"does not hold: {reason}" in stated.checked("main", change(plan)).text
        with pytest.raises(CollageError, match=r"m.onnx has no function other with candidates"):
            stated.checked("other", plan)


def test_a_plan_is_compared_with_the_costs_of_its_model() -> None:
    with only_backends(TOY):
        mod, pipeline, plan = compiled_from(FASTER)
        stated = of_model(mod, "m.onnx", pipeline, {"main": plan}, has_costs=True)
        assert stated.checked("main", plan).text.startswith("proved: 2600 ms, and no plan of its ")
        _, _, other = compiled_from(FixedCost({"toy": 1.0, "tvm": 2.0, "tvm:relu+exp+tanh": 1.5}, launch=0.1))
        assert checked(other).holds
        for lie in (other, without_the_kernel(plan, stated)):
            assert "the annotations state another problem" in stated.checked("main", lie).text


def test_the_command_refuses_a_forged_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, _, plan = searched()
    path, annotated = tmp_path / "plan.json", tmp_path / "before.py"
    path.write_text(json.dumps(encode(with_costs(plan, 9.0))))
    annotated.write_text(before.script(show_meta=True))
    assert main(["check", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out.startswith("plan: does not hold: it costs 9.1 s, not 2.6 s")
    assert "1 of 1 plans in" in output.err
    path.write_text(json.dumps({"main": encode(with_costs(plan, 9.0))}))
    assert main(["check", str(path), "--annotated", str(annotated)]) == 1
    assert "the annotations state another problem" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("plan.json", "{", "is not JSON"),
        ("plan.json", "[]", "has no plans by function"),
        ("plan.json", '{"main": {"kernels": 3}}', "collage.plan cannot be read"),
        ("plan.json", '{"main": {"proved": true, "problem": "x"}}', "the problem of a plan cannot be read"),
        ("module.py", "x = 3", "is not a module as text"),
    ],
)
def test_a_file_that_is_something_else_is_an_error_in_a_line(
    name: str, text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["check", str(tmp_path / name)]) == 1
    assert reason in capsys.readouterr().err


def test_a_file_that_is_not_there_is_no_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.so"]) == 1
    assert "nowhere.so is not a file" in capsys.readouterr().err
    assert main(["check", "nothing", "--annotated", "x.py"]) == 2
    assert "nothing is not a file with plans" in capsys.readouterr().err


def test_a_saved_program_has_its_plan_with_the_proof() -> None:
    _, _, plan = searched()
    facts: Any = {"plan": _packed({"main": plan})}
    assert plans_in(facts) == {"main": plan}


def test_a_text_that_is_no_problem_is_named() -> None:
    for text in ("", "x", "eJw="):
        with pytest.raises(InvalidAnnotation, match="the problem of a plan cannot be read"):
            unpacked(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sources": [["0"], [], []]}, "'0' is not a whole number"),
        ({"free": [10**12]}, "a node does not exist"),
        ({"results": [-1]}, "a node does not exist"),
        ({"launch_seconds": None}, "None is not a number"),
        ({"launches": []}, "no attribute"),
        ({"options": [[0, [0], "1", [], 0, None, None]]}, "'1' is not a number"),
        ({"options": [[[0], [0], 1.0, [], 0, None, None]]}, "is not a whole number"),
        ({"transitions": [["tvm", 1, 0.5]]}, "1 is not a text"),
    ],
)
def test_a_problem_of_other_types_is_named(change: dict[str, Any], reason: str) -> None:
    """Otherwise the checker would end in an error of its own, or take all memory for a number of a node."""
    data = json.loads(zlib.decompress(base64.b64decode(packed(stated_problem(costed()["main"])))))
    text = base64.b64encode(zlib.compress(json.dumps({**data, **change}).encode())).decode()
    with pytest.raises(InvalidAnnotation, match=f"the problem of a plan cannot be read: .*{reason}"):
        unpacked(text)


def test_what_is_no_problem_at_all_is_named() -> None:
    problem = stated_problem(costed()["main"])
    assert why_malformed(problem) is None
    assert "does not come before" in (why_malformed(replace(problem, sources=((1,), (), ()))) or "")
    twice = (*problem.options, problem.options[0])
    assert why_malformed(replace(problem, options=twice)) == "two options have one id"
    outside = (replace(problem.options[0], inside=0b1000),)
    assert "nodes that do not exist" in (why_malformed(replace(problem, options=outside)) or "")
    vague = (replace(problem.options[0], low=nan), *problem.options[1:])
    assert why_malformed(replace(problem, options=vague)) == "option 0 has no interval"
    for changed in ({"launch_seconds": inf}, {"launches": {"tvm": nan}}, {"drift": nan}):
        assert "is not a finite number" in (why_malformed(replace(problem, **changed)) or "")
    short = replace(problem, transitions={("toy", "tvm"): (0.1,)})
    assert why_malformed(short) == "transitions are not for each node"
    for endless in (inf, (0.1, inf, 0.1)):  # a plan that costs infinitely much would cost what it says, too
        forged = replace(problem, transitions={("toy", "tvm"): endless})
        assert why_malformed(forged) == "a transition is not a finite number"


def _typed(costs: dict[int, Cost]) -> relax.Function:
    """The diamond 0 relu, 1 exp, 2 tanh, 3 add with a candidate for each, and one that computes relu again."""
    candidates = (
        *(Candidate(i, "tvm", "typed", "single", (i,)) for i in range(4)),
        Candidate(4, "toy", "typed", "relu+exp", (0, 1), hidden=(0,)),
    )
    by_key = {str(c.id): costs.get(c.id, Cost(1.0, 0.9, 1.1, 9)) for c in candidates}
    keys = {c.id: str(c.id) for c in candidates}
    transitions = {"toy>tvm": ((4, 0.125), (4096, 0.5))}
    made = Costs(by_key, keys, 0.25, {"toy": 0.5}, transitions)
    return COSTS.write(CANDIDATES.write(graphs.diamond(), candidates), made)


NONE = Cost(None, reason="refused")


@pytest.mark.parametrize(
    "costs",
    [
        {},
        {1: Cost(None, bound=0.5), 4: Cost(None, origin=UNKNOWN)},
        {0: NONE},
        {0: NONE, 1: NONE, 4: NONE},
        {0: NONE, 2: NONE},
        dict.fromkeys(range(5), NONE),
        {3: Cost(None, reason="late", origin=UNKNOWN)},
        {1: Cost(3.0, origin=EXPECTED, bound=0.5), 3: Cost(1.0, origin=EXPECTED)},
    ],
)
def test_the_checker_states_the_problem_that_is_searched(costs: dict[int, Cost]) -> None:
    """By code of its own, also where kernels are missing: what may be left behind follows from them."""
    func = _typed(costs)
    graph, candidates, typed = DataflowGraph(func), CANDIDATES.read(func), COSTS.read(func)
    asked = optimistic(graph, candidates, typed, problem_of(graph, candidates, typed))
    stated = stated_problem(func)
    assert why_another_problem(asked, stated) is None
    assert unpacked(packed(stated)) == stated


def _with_a_guess(bound: float) -> tuple[relax.Function, Plan]:
    """The plan of single kernels, each 1 s, beside a kernel of two nodes that is expected to cost 9 s."""
    func = _typed({4: Cost(9.0, origin=EXPECTED, bound=bound)})
    with Target("llvm"):
        return func, PLAN.read(SearchPartition()(IRModule({"main": func}))["main"])


def test_a_guessed_cost_of_another_kernel_proves_nothing() -> None:
    """By its lower bound it might make a cheaper plan, by its expected cost it does not."""
    func, plan = _with_a_guess(0.001)
    assert not plan.proved and checked(plan, stated_problem(func)).holds
    _, sure = _with_a_guess(3.0)
    assert sure.proved


def test_a_plan_that_is_proved_by_a_guessed_cost_is_refused() -> None:
    func, plan = _with_a_guess(0.001)
    problem = unpacked(plan.problem)
    options = tuple(replace(option, least=None) for option in problem.options)
    trusting = replace(problem, options=options)
    claim = certified(trusting, solve(trusting))
    assert claim.proved
    lie = replace(plan, certificate=claim, proved=True, lower_bound=claim.lower_bound)
    assert not checked(lie, stated_problem(func)).holds
    hidden = checked(replace(lie, problem=packed(trusting)), stated_problem(func))
    assert "the annotations state another problem: candidate 4 differs" in hidden.text


def test_a_plan_that_chooses_a_kernel_at_its_lower_bound_is_refused() -> None:
    """Only a lower bound of one kernel is known, and with it the plan seems to be cheaper."""
    func = _typed({4: Cost(None, reason="late", bound=0.001)})
    with Target("llvm"):
        plan = PLAN.read(SearchPartition()(IRModule({"main": func}))["main"])
    problem = unpacked(plan.problem)
    claim = certified(problem, solve(problem))
    assert claim.proved and 4 in claim.chosen and claim.seconds < plan.seconds
    assert why_not(problem, claim) == "option 4 was not measured: its cost is a lower bound"
    assert checked(plan, stated_problem(func)).holds
    lie = _with_certificate(plan, problem, claim)
    stated = checked(lie, stated_problem(func))
    assert stated.text == "does not hold: option 4 was not measured: its cost is a lower bound"
    hidden = replace(problem, options=tuple(replace(o, is_open=False) for o in problem.options))
    unmarked = checked(replace(lie, problem=packed(hidden)), stated_problem(func))
    assert "the annotations state another problem: candidate 4 differs" in unmarked.text


def _with_certificate(plan: Plan, problem: Problem, claim: Certificate) -> Plan:
    """``plan`` with the kernels and the figures of another certificate."""
    by_id = {option.id: option for option in problem.options}
    like = plan.kernels[0]
    kernels = tuple(
        replace(
            like,
            candidate=option.id,
            backend=option.backend,
            seconds=option.seconds,
            interval=None if option.low is None else option.interval,
        )
        for option in map(by_id.__getitem__, claim.chosen)
    )
    return replace(
        plan,
        certificate=claim,
        kernels=kernels,
        proved=claim.proved,
        seconds=claim.seconds,
        lower_bound=claim.lower_bound,
        gap=claim.gap,
        tie_policy=None,
        more_than_cheapest=0.0,
    )


def test_the_problems_at_samples_have_the_lower_bounds_of_guesses() -> None:
    """Of the problem that is searched and of the one that is stated, also where only one sample has a guess."""
    sample = _typed({})
    by_key = COSTS.read(sample).by_key
    guess = Cost(9.0, origin=EXPECTED, bound=0.5)
    tables = [
        {**by_key, "4": guess, "1": guess, "2": Cost(None, reason="late", bound=0.25)},
        {**by_key, "4": guess, "2": guess},
    ]
    samples = [SampleCosts({"n": n}, 0.5, table) for n, table in enumerate(tables)]
    costs = weighed_costs(replace(COSTS.read(sample), transitions={}), samples)
    graph, candidates = DataflowGraph(sample), CANDIDATES.read(sample)
    whole = optimistic(graph, candidates, costs, problem_of(graph, candidates, costs))
    stated = posed_samples(graph, candidates, costs)
    assert why_another_problem(whole, weighted_sum(stated)) is None
    for each, there in zip(samples, stated, strict=True):
        assert why_another_problem(problem_at(graph, costs, whole, each), there.problem) is None
    assert {option.id: option.least for option in whole.options if option.least is not None} == {
        1: 0.75,
        4: 0.5,
    }
