"""The contract instrument: it finds each promise that a pass breaks, and parses nothing twice."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.testing import contract
from unity_collage.testing.contract import Contract, why_no_round_trip


@I.ir_module
class Relu:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y


@I.ir_module
class Exp:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y


def with_attribute(mod: IRModule, value: object) -> IRModule:
    return IRModule({"main": mod["main"].with_attr("collage.test", value)})


def after(change: Callable[[IRModule], IRModule]) -> IRModule:
    """What a pass of this package that does ``change`` makes of :class:`Relu` under the contract."""
    made = tvm.transform.module_pass(lambda mod, _: change(mod), opt_level=0, name="collage.Changed")
    with tvm.transform.PassContext(instruments=[Contract()]):
        return made(Relu.clone())


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed from now on, when none is known."""
    texts: list[str] = []
    parse = tvm.script.from_source

    def noting(text: str) -> IRModule:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(contract, "_parsed", OrderedDict())
    monkeypatch.setattr(tvm.script, "from_source", noting)
    return texts


def test_a_pass_that_keeps_its_promises_is_left_alone() -> None:
    assert "collage.test" in after(lambda mod: with_attribute(mod, ["a", {"b": 1}]))["main"].attrs


def _edited(mod: IRModule) -> IRModule:
    mod[mod.get_global_var("main")] = Exp["main"]
    return Exp


def _ill_formed(mod: IRModule) -> IRModule:
    unknown = relax.Var("unknown", relax.TensorType((4,), "float32"))
    main = mod["main"]
    return IRModule({"main": relax.Function(main.params, relax.SeqExpr([], unknown), main.ret_ty)})


@pytest.mark.parametrize(
    ("change", "reason"), [(_edited, "has edited its input"), (_ill_formed, "is not well-formed")]
)
def test_a_broken_promise_is_an_error(change: Callable[[IRModule], IRModule], reason: str) -> None:
    with pytest.raises(AssertionError, match=f"collage.Changed .*{reason}"):
        after(change)


@pytest.mark.parametrize(("written", "read"), [("nn.relu", "exp"), ('"a"', '"b"')])
def test_bindings_and_attributes_have_to_parse_back(
    written: str, read: str, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = tvm.script.from_source
    monkeypatch.setattr(tvm.script, "from_source", lambda text: parse(text.replace(written, read)))
    assert why_no_round_trip(with_attribute(Relu, "a")) == "the script parses back to another module"
    assert why_no_round_trip(with_attribute(Relu, "a")) is not None, "a refusal is not kept"


def test_bindings_are_parsed_once_for_all_their_attributes(parsed: list[str]) -> None:
    assert why_no_round_trip(with_attribute(Relu, "a")) is None
    assert ["nn.relu" in text for text in parsed] == [True, False]
    assert why_no_round_trip(with_attribute(Relu, "b")) is None
    assert ["nn.relu" in text for text in parsed] == [True, False, False]
    assert why_no_round_trip(with_attribute(Relu, "a")) is None
    assert len(parsed) == 3


def test_a_known_text_of_another_module_is_parsed_again(parsed: list[str]) -> None:
    assert why_no_round_trip(Relu) is None
    (digest,) = contract._parsed
    contract._parsed[digest] = Exp
    assert why_no_round_trip(Relu) is None
    assert len(parsed) == 2


def test_the_stack_of_these_tests_is_that_of_python() -> None:
    """``conftest.py`` replaces ``inspect.stack`` by a faster function."""
    quick, frame = inspect.stack(), inspect.currentframe()
    assert inspect.stack.__module__ != "inspect"
    for ours, right in zip(quick[1:], inspect.getouterframes(frame)[1:], strict=True):
        assert (ours.frame, ours.lineno, ours.function) == (right.frame, right.lineno, right.function)
        assert (ours.code_context, ours.index) == (right.code_context, right.index)
