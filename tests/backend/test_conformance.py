"""The conformance kit: our backends and the example pass it, and it finds every defect that is planted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tomllib
import tvm
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.backends.registry import ENTRY_POINT_GROUP, known
from unity_collage.cli.main import main
from unity_collage.compiler import compile_with
from unity_collage.errors import CollageError
from unity_collage.pipeline import collage
from unity_collage.target import CUDA
from unity_collage.testing import graphs
from unity_collage.testing.conformance import CASES, CHECKS, CheckState, case, examine
from unity_collage.testing.conformance.cases import bound, weights
from unity_collage.testing.conformance.library import OF_THE_LIBRARY
from unity_collage.testing.fake_backend import only_backends
from unity_collage.testing.fake_kernels import CANNOT_COMPILE, MISBEHAVIOURS
from unity_collage.testing.fixed_cost import FixedCost

EXAMPLE = Path(__file__).parents[2] / "examples" / "backend"
HERE = Path(__file__).parent

ON_CPU = [name for name, backend in known().items() if backend.kinds != {CUDA}]
"""The others are examined in tests/gpu."""

KNOWN = {
    (
        "tvm",
        "proposals",
    ): "a kernel with a tuple among its operands is proposed, and no cost can be found for it",
    ("mnn", "proposals"): "it makes whole models, and no kernels",
}
"""Promises that are not kept yet."""

SKIPPED = {
    "tvm": {"together", "errors"},
    "tvm_openblas": {"together", "errors", "outputs"},
    "handmade:HANDMADE": {"constants", "outputs"},
    "onnxruntime": {"threads"},
    "openvino": {"threads"},
    "mnn": {*OF_THE_LIBRARY} - {"fingerprint"},
    "torch": set(),
}
"""What cannot be checked; of all others ``outputs``, since they make no kernel with several."""

RELU = (case("relu", R.nn.relu, (3, 5)), case("exp", R.exp, (3, 5)))
TWO_RESULTS = (case("two results", lambda x: (bound(R.exp(x)), bound(R.tanh(x))), (3, 5)),)
A_CONSTANT = (case("a constant", lambda x: R.add(x, weights(5)), (3, 5)),)
LONG = (next(one for one in CASES if one.name == "graph gelu_extract"),)

FAKES = {
    "none": {},
    "slow": {},
    CANNOT_COMPILE: {"made": "ValueError: this code generator cannot compile"},
    "segfault": {"runs": "it crashed the process: SIGSEGV"},
    "exits": {"runs": "it ended the process with exit code 0"},
    "hang": {"runs": "no answer within 5 s while running"},
    "raises": {"runs": "this kernel raises"},
    "wrong_numbers": {"numbers": "output 0 is off by"},
    "wrong_on_edges": {"numbers": "output 0 is off by"},
    "nan": {"numbers": "output 0 is infinite or NaN"},
    "writes_behind_output": {"bounds": "it wrote outside of its tensors"},
    "writes_far_behind_output": {"bounds": "it wrote outside of its tensors"},
    "writes_before_output": {"bounds": "it wrote outside of its tensors"},
    "reads_before_input": {"bounds": "it read outside of its tensors"},
    "writes_input": {"bounds": "it wrote to one of its inputs"},
}
"""The checks that a fake fails besides those that all of them fail, and what they say."""

PLANTED = [
    ("BAD_NAME", RELU, {"value": "its name is 're lu'"}),
    ("UNHASHABLE", RELU, {"value": "it does not hash"}),
    ("EMPTY_REASON", RELU, {"availability": "why_unavailable() answers ''"}),
    ("LOADING", RELU, {"availability": "why_unavailable() loads /",
                       "fingerprint": "it is not stable: 'planted ",
                       "refusals": "the reason is False, not a text",
                       "repeatable": "two runs on equal inputs, with another between them, differ",
                       "threads": "of its own"}),
    ("NAMELESS", RELU, {"fingerprint": "' ' is not one line of text",
                        "refusals": "the reason is an empty text",
                        "pool": "2 OpenMP runtimes are in this process"}),
    ("TWO_LINES", RELU, {"fingerprint": "is not one line of text",
                         "errors": "[exp float32 (3,5)], which the rule declines: it crashed the process: SIGABRT"}),
    ("ENDS", LONG, {"proposals": "ends is not a valid kernel: not convex"}),
    ("RAISING", RELU, {"proposals": "KeyError: 'shape'"}),
    ("SHUFFLED", LONG, {"order": "in one process, "}),
    ("SWAPPING", TWO_RESULTS, {"outputs": "output 0 is off by"}),
    ("NO_CONSTANTS", A_CONSTANT, {"constants": "output 0 is off by"}),
    ("ONLY_THE_FIRST", A_CONSTANT, {"together": "2 functions were given at once, and kernel_1 is in none"}),
    ("CONSTANTS_OF_THE_FIRST", A_CONSTANT, {"together": "kernel_1: output 0 is off by"}),
]  # fmt: skip


@pytest.mark.parametrize("name", [*ON_CPU, "handmade:HANDMADE"])
def test_a_backend_keeps_its_promises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    report = examine(name)
    if report.unavailable is not None:
        pytest.skip(report.unavailable)
    broken = {verdict.check: "\n".join((*verdict.findings, verdict.remedy)) for verdict in report.failed}
    assert set(broken) == {check for of, check in KNOWN if of == name}, "\n\n".join(broken.values())
    skipped = {check for check in CHECKS if report[check].state is CheckState.SKIPPED}
    assert skipped == SKIPPED.get(name, {"outputs"})


def test_every_misbehaviour_of_the_fakes_is_tried() -> None:
    # TVM takes half a minute to report that memory ran out: the tests of the guard cover that one.
    assert set(FAKES) == {*MISBEHAVIOURS, CANNOT_COMPILE} - {"allocates_without_end"}


@pytest.mark.parametrize("misbehaviour", FAKES)
def test_a_fake_fails_the_check_of_its_misbehaviour(misbehaviour: str) -> None:
    seconds = 5.0 if misbehaviour == "hang" else 300.0
    where = f"unity_collage.testing.fake_backend:FAKES.{misbehaviour}"
    report = examine(where, RELU[:1], seconds)
    expected = FAKES[misbehaviour]
    # Their predicates are made again at each call, and their kernels call back into the process that made them.
    common = {"rule"} if expected else {"rule", "exported"}
    assert {verdict.check for verdict in report.failed} == {*common, *expected}
    for check, finding in expected.items():
        assert finding in report[check].line and report[check].remedy


@pytest.mark.parametrize(("planted", "cases", "findings"), PLANTED)
def test_a_planted_defect_is_found(
    planted: str, cases: tuple, findings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    report = examine(f"planted_backends:{planted}", cases)
    for check, finding in findings.items():
        verdict = report[check]
        assert verdict.state is CheckState.FAILED and any(finding in one for one in verdict.findings), verdict
        assert verdict.remedy == CHECKS[check]


def test_every_check_can_fail() -> None:
    planted = {check for _, _, findings in PLANTED for check in findings}
    planted |= {check for checks in FAKES.values() for check in checks}
    assert planted | {"rule", "exported"} == set(CHECKS)


def test_what_needs_the_library_is_skipped_for_the_reason_that_it_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    report = examine("planted_backends:UNAVAILABLE", RELU)
    assert report.unavailable == "there is no librelu.so"
    assert not report.failed and report["proposals"].state is CheckState.PASSED
    assert report["numbers"].state is CheckState.SKIPPED
    assert report["numbers"].line == "not available here: there is no librelu.so"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("nothing", "no backend named 'nothing'"),
        ("nothing.at_all:BACKEND", "nothing.at_all:BACKEND cannot be imported: No module named 'nothing'"),
        ("os:BACKEND", "os:BACKEND cannot be imported"),
    ],
)
def test_what_is_not_there_cannot_be_examined(where: str, reason: str) -> None:
    with pytest.raises(CollageError, match=reason):
        examine(where, RELU)


def test_the_command_ends_with_an_error_where_a_check_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    assert main(["check", "planted_backends:BAD_NAME"]) == 1
    said = capsys.readouterr()
    assert "FAILED  value" in said.out and f"-> {CHECKS['value']}" in said.out
    assert "planted_backends:BAD_NAME fails 1 of 19 checks" in said.err


def test_the_example_names_its_backend_as_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][ENTRY_POINT_GROUP] == {"handmade": "handmade:HANDMADE"}


def test_a_program_with_generated_code_is_saved_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from handmade import HANDMADE

    module = IRModule({"main": graphs.two_branches_joining()})
    # Without the contract instrument: the script of a module cannot show generated code.
    with only_backends(HANDMADE), tvm.transform.PassContext():
        program = compile_with(collage(["handmade"], FixedCost()), module)
    program.save(tmp_path / "program.so")
    x, y = graphs.inputs(module["main"], seed=0)
    expected = np.maximum(x, 0) + np.maximum(y, 0)
    np.testing.assert_allclose(uc.load(tmp_path / "program.so")(x, y).numpy(), expected, rtol=1e-6)
