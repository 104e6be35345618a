"""Options behind the names of backends: how they are read, and that costs hold for them only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FusionPattern
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

import unity_collage as uc
from unity_collage.annotations import CANDIDATES
from unity_collage.backends import registry
from unity_collage.backends.options import name_of, split
from unity_collage.cost.asking import workloads
from unity_collage.errors import CollageError
from unity_collage.feedback.records import choice_of, described
from unity_collage.feedback.whole_models import runtimes_among
from unity_collage.measure.inputs import random_inputs
from unity_collage.measure.kernels import NoKernel, make_kernel
from unity_collage.passes import AnnotateCandidates, EstimateCosts, OffloadBYOC, SearchPartition
from unity_collage.sessions import RUNTIMES
from unity_collage.testing.fixed_cost import FixedCost
from unity_collage.testing.foreign_backend import foreign_backend

PATTERN = FusionPattern("theirs.relu", is_op("relax.nn.relu")(wildcard()))


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y


Groups = list[tuple[list[str], dict[str, Any]]]


@contextmanager
def theirs() -> Iterator[Groups]:
    """A foreign backend; the functions and options that its code generator gets."""
    got: Groups = []

    def codegen(functions: Sequence[relax.Function], options: Mapping[str, Any], _names: object) -> list[Any]:
        got.append(([str(func.attrs["global_symbol"]) for func in functions], dict(options)))
        return []

    with foreign_backend("theirs", [PATTERN], codegen=codegen):
        yield got


def test_options_stand_behind_the_name() -> None:
    assert split("openvino") == ("openvino", {})
    assert split("openvino:A=1:B=x=y") == ("openvino", {"A": "1", "B": "x=y"})
    assert name_of("openvino:A=1") == "openvino"


@pytest.mark.parametrize("text", ["openvino:A", "openvino:=1", "openvino:", "openvino:A=1:A=2"])
def test_what_is_not_an_option_is_refused(text: str) -> None:
    with pytest.raises(CollageError, match="write the options of a backend as openvino:KEY=VALUE"):
        split(text)


def test_only_some_backends_take_options() -> None:
    with pytest.raises(CollageError, match=r"backend tvm takes no options; these do: .*openvino"):
        registry.select(["tvm:A=1"], Target("llvm"))


def test_the_libs_of_a_target_may_have_options() -> None:
    with theirs():
        target = Target({"kind": "llvm", "libs": ["theirs:fast=1", "tvm"]})
        first, second = registry.select(None, target)
    assert (first.name, first.options, second.name) == ("theirs", (("fast", "1"),), "tvm")


def test_a_backend_has_one_set_of_options() -> None:
    with (
        theirs(),
        pytest.raises(CollageError, match="theirs is named twice"),
    ):
        registry.select(["theirs:fast=1", "theirs"], Target("llvm"))


def _keys(*names: str) -> set[str]:
    with uc.host_target():
        mod: IRModule = AnnotateCandidates(names)(Model)
    return {each.key for each in workloads(mod["main"], FixedCost()).values()}


def test_a_cost_holds_for_its_options() -> None:
    with theirs():
        plain, fast, slow = _keys("theirs"), _keys("theirs:fast=1"), _keys("theirs:fast=0")
    assert len(plain | fast | slow) == 3


def test_candidates_carry_options_through_the_text() -> None:
    with theirs(), uc.host_target():
        mod = AnnotateCandidates(("theirs:b=2:a=1",))(Model)
    (first,) = (each for each in CANDIDATES.read(mod["main"]) if each.backend == "theirs")
    assert first.options == (("a", "1"), ("b", "2"))


def test_what_is_measured_and_what_is_built_have_the_options() -> None:
    with theirs() as got, uc.host_target() as target:
        mod = AnnotateCandidates(("theirs:b=2:a=1",))(Model)
        costed = EstimateCosts(FixedCost({"theirs": 1e-6}))(mod)
        (asked,) = {each.key: each for each in workloads(mod["main"], FixedCost()).values()}.values()
        with pytest.raises(NoKernel):  # this code generator makes none
            make_kernel(asked.func, random_inputs(asked.func), registry.get("theirs"), target)
        OffloadBYOC({"theirs": {"a": "0", "c": "3"}})(SearchPartition()(costed))
    measured, built = (options for _, options in got)
    assert measured == {"a": "1", "b": "2"}
    assert built == {"a": "1", "b": "2", "c": "3"}


def test_stored_plans_are_told_apart_by_options() -> None:
    with theirs(), uc.host_target():
        plain, fast = (AnnotateCandidates((name,))(Model) for name in ("theirs", "theirs:fast=1"))
    chosen = {"main": tuple(c.id for c in CANDIDATES.read(plain["main"]) if c.backend == "theirs")}
    assert described(plain, chosen) != described(fast, chosen)
    for mod in (plain, fast):
        assert choice_of(mod, described(mod, chosen)) == chosen
    assert choice_of(fast, described(plain, chosen)) is None


def test_the_libs_of_a_target_reach_whole_models() -> None:
    _, found = runtimes_among(None, ("tvm", "openvino:NUM_STREAMS=1"))
    given = {each.name: each.options for each in found}
    assert given.get("openvino", {"NUM_STREAMS": "1"}) == {"NUM_STREAMS": "1"}
    assert given.get("onnxruntime", {}) == {}


@pytest.mark.parametrize("runtime", sorted(RUNTIMES))
def test_a_runtime_is_named_once(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(RUNTIMES[runtime]), "why_unavailable", lambda _self: None)
    with pytest.raises(CollageError, match=f"{runtime} is named twice"):
        runtimes_among([runtime, f"{runtime}:session.a=1"])


def test_a_runtime_names_the_options_that_it_would_ignore() -> None:
    with pytest.raises(CollageError, match=r"ONNX Runtime has no option 'spin': .* begin with session"):
        RUNTIMES["onnxruntime"].with_options({"spin": "0"})


def test_options_count_more_than_our_settings() -> None:
    asked = RUNTIMES["openvino"].with_options({"INFERENCE_PRECISION_HINT": "f16"})
    assert asked.settings_for("bf16") == {**asked.settings, "INFERENCE_PRECISION_HINT": "f16"}
