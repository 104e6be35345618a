"""Errors of TVM as users see them: the line that names the shapes, without what only TVM's developers read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm.ir import IRModule

from unity_collage.errors import CollageError, ModelError, first_line, in_words, last_line
from unity_collage.frontend.models import import_model, read_model
from unity_collage.inspection import given_plan
from unity_collage.inspection.plan_files import plans_of
from unity_collage.profile.agreement import read_inputs
from unity_collage.runtime.custom_op_libraries import libraries_at


def model_of(text: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
    for name, shape in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, "float32"), name))
    return model


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        (
            model_of("m (float[4, 16] x) => (float[4, 8] y) { y = MatMul (x, w) }", w=(4, 8)),
            ["MatMul 'y'", "x has shape [4, 16]", "the RHS a constant has shape [4, 8]"],
        ),
        (
            model_of("m (float[4, 16] x) => (float[4, 8] y) { y = Add (x, w) }", w=(4, 8)),
            ["Add 'y'", "In add, the first input shape at dim 1 is 16", "second input shape at dim 1 is 8"],
        ),
        (
            model_of("m (float[4, 16] x, int64[4, 16] w) => (float[4, 16] y) { y = Add (x, w) }"),
            ["float32 on the LHS (Type of float32[4, 16])", "int64 on the RHS (Type of int64[4, 16])"],
        ),
        (
            model_of(
                "m (float[4, 16] x, int64[2] i, float[3] u) => (float[4, 16] y) { y = ScatterElements (x, i, u) }"
            ),
            ["ScatterElements 'y'", "its indices have rank 1, and its tensor rank 2"],
        ),
    ],
    ids=["a constant", "an operator", "types", "ranks"],
)
def test_a_model_that_does_not_fit_names_its_shapes(model: onnx.ModelProto, parts: list[str]) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(model)
    text = str(caught.value)
    assert all(part in text for part in parts), text
    for noise in ("Metadata", "show_meta", "T.int64", "R.shape", "ir.Op", "support_level", "zip()", "\n"):
        assert noise not in text


def test_a_warning_names_the_line_of_the_user() -> None:
    branch = "b () => (float[{0}] r) {{ s = Constant <value = int64[1] {{{0}}}> () r = Reshape (x, s) }}"
    made = model_of(
        "m (float[4] x, bool c) => (float[n] y) "
        f"{{ y = If (c) <then_branch = {branch.format(4)}, else_branch = {branch.format(3)}> }}"
    )
    with pytest.warns(UserWarning, match="fails where the condition") as told:
        import_model(made)
    assert told[0].filename == __file__


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError, UserWarning])
def test_what_a_signal_handler_or_a_filter_raises_during_a_pass_keeps_its_class(
    kind: type[BaseException],
) -> None:
    @tvm.transform.module_pass(opt_level=0)
    def interrupted(_mod: IRModule, _ctx: object) -> IRModule:
        raise kind("of the user")

    with pytest.raises(kind, match="of the user"):
        interrupted(IRModule())


@pytest.mark.parametrize(
    "read",
    [
        partial(read_inputs, names=()),
        plans_of,
        given_plan._read,
        libraries_at,
        lambda name: read_model(Path(name)),
        lambda name: read_model(Path(f"{name}.pt2")),
    ],
    ids=["inputs", "plans", "a given plan", "custom operators", "a model", "a model of PyTorch"],
)
@pytest.mark.parametrize("name", ["x" * 300, "loop"], ids=["long", "loop"])
def test_a_name_that_the_system_refuses_is_one_line(
    read: Callable[[str], object], name: str, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CollageError, match="is not a file") as refused:
        read(str(tmp_path / name))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('a metadata["ir.GenericConst"][0]\n# Metadata omitted. Use show_meta=True in script() method to show it. b',
         "a a constant b"),
        ("T.int64(4) and T.int64(-1), T.float32", "4 and -1, float32"),
        ("R.Tensor((4,), dtype=\"int8\") and R.shape([n, 4])", "int8[4] and [n, 4]"),
        ("Check failed: (a != b) is false: Unknown function: main", "Unknown function: main"),
        ("Check failed: (a != b) is false", "Check failed: (a != b) is false"),
        ("int64 and T.prim_func stay", "int64 and T.prim_func stay"),
    ],
)  # fmt: skip
def test_what_stands_for_how_tvm_prints(text: str, plain: str) -> None:
    assert in_words(text) == plain


def test_lines_are_those_of_the_plain_text() -> None:
    error = ValueError(
        "first T.int64(1)\nsecond\n# Metadata omitted. Use show_meta=True in script() method to show it."
    )
    assert (first_line(error), last_line(error)) == ("first 1", "second")
    assert (first_line(ValueError()), last_line(ValueError())) == ("ValueError", "")
