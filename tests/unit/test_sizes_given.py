"""Sample sizes as users give them: in ``--shape``, in ``shapes=``, for ONNX models whose names are not identifiers."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from rich.console import Console

import unity_collage as uc
from unity_collage.cli.options import add_options, sizes_of
from unity_collage.errors import ModelError
from unity_collage.frontend.models import import_model
from unity_collage.plan.plan import Plan
from unity_collage.report import plan_summary
from unity_collage.sizes.variants import varied


def relu(*shape: int | str) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(
    ("given", "shapes"),
    [
        (["batch=1"], {"batch": 1}),
        (["batch=1,8,32"], {"batch": (1, 8, 32)}),
        (["length=1..512"], {"length": range(1, 513)}),
        (["length=16:0.7, 512:0.3"], {"length": {16: 0.7, 512: 0.3}}),
        (["length= 4 .. 4 ", "x=1x3"], {"length": range(4, 5), "x": (1, 3)}),
    ],
)
def test_sizes_on_the_command_line(given: list[str], shapes: dict[str, Any]) -> None:
    parser = ArgumentParser()
    add_options(parser)
    options = parser.parse_args(["model.onnx", *(word for text in given for word in ("--shape", text))])
    assert sizes_of(options)["shapes"] == shapes


@pytest.mark.parametrize(
    "text", ["length=1..", "length=8..1", "length=0..4", "length=..4", "=1..4", "length=a..b"]
)
def test_what_is_no_range(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["model.onnx", "--shape", text])
    assert "or NAME=1..512 for a range of sizes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("length=16:0.7,512", "has no weight for each size: write NAME=16:0.7,512:0.3"),
        ("length=16:a", "has no weight for each size"),
        ("length=16:1,16:2", "has two weights for 16"),
    ],
)
def test_what_are_no_weights(text: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["model.onnx", "--shape", text])
    assert reason in " ".join(capsys.readouterr().err.split())


def test_weights_are_for_a_dimension() -> None:
    with pytest.raises(ModelError, match="weights are for a dimension, and 'x' is an input"):
        import_model(relu("n", 4), shapes={"x": {1: 0.5}})


def test_a_dimension_whose_name_is_no_identifier() -> None:
    source = import_model(relu("batch size", 4), shapes={"batch size": [1, 2]})
    assert source.samples == {"batch_size": [1, 2]}
    assert source.at is not None
    mod, _ = varied(source.mod, source.samples, lambda sizes: source.at(sizes).mod)
    assert [int(dim) for dim in mod["main_batch_size_2"].params[0].ty.shape.values] == [2, 4]


def test_a_dimension_without_a_name() -> None:
    assert import_model(relu("", 4), shapes={"x_0": [1]}).samples == {"x_0": [1]}


def test_fixed_sizes_stay_fixed_in_variants() -> None:
    source = import_model(relu("n", "m"), shapes={"n": [1, 2]}, dims={"m": 3})
    assert source.at is not None
    (param,) = source.at({"n": 2}).mod["main"].params
    assert [int(dim) for dim in param.ty.shape.values] == [2, 3]


def test_several_numbers_for_an_unknown_name_are_the_error_of_before() -> None:
    with pytest.raises(ModelError, match="the model has no input 'k'; its inputs are x"):
        import_model(relu("n", 4), shapes={"k": (1, 2)})


def test_a_dry_run_counts_the_kernels_of_each_variant() -> None:
    found = uc.dry_run(relu("n", 4), shapes={"n": [1, 2]}, backends=["tvm"])
    assert sorted(found.functions) == ["main_any_size", "main_n_1", "main_n_2"]


def test_the_summary_says_which_sizes_a_plan_is_for() -> None:
    def first_line(name: str, plan: Plan) -> str:
        console = Console(width=120)
        with console.capture() as captured:
            console.print(plan_summary(name, plan))
        return captured.get().splitlines()[0]

    of_main = Plan(variants={"main_n_1": {"n": 1}, "main_n_2": {"n": 2}}, remarks=("plans of their own",))
    assert first_line("main", of_main) == "main: by the sizes of its inputs it runs one of 2 plans"
    assert first_line("main_n_2", Plan(sizes={"n": 2})).startswith("main_n_2 (n 2): ")
