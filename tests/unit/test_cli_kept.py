"""The command looks for a kept program under the name that ``compile`` keeps it by."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from unity_collage import keeping
from unity_collage.cli import kept
from unity_collage.cli.options import add_devices, add_memory_limit, add_no_measure, add_options, sizes_of
from unity_collage.cli.settings import cost_model_of
from unity_collage.database.answers import Answers
from unity_collage.frontend.onnx.reading import read_onnx
from unity_collage.kept.models import digest_of_file
from unity_collage.measure.measured import MeasuredCost
from unity_collage.runtime.custom_op_libraries import libraries_at


def options(tmp_path: Path, *arguments: str) -> Namespace:
    parser = ArgumentParser()
    add_options(parser)
    add_no_measure(parser)
    add_memory_limit(parser)
    add_devices(parser)
    return parser.parse_args(
        ["model.onnx", "--database", str(tmp_path / "c.sqlite"), *arguments], Namespace(threads=None)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--shape", "x=1,3", "--shape", "n=1..8", "--dim", "m=2"],
        ["--precision", "bf16", "--no-winograd", "--search-layouts", "--no-packs"],
        ["--percentile", "90", "--budget", "none"],
        ["--budget", "30s", "--target", "llvm -mcpu=znver4", "--backends", "onednn", "tvm"],
        ["--no-measure", "--no-packs"],
        ["--memory-limit", "200MB"],
        ["--custom-op-library", __file__],
    ],
)
@pytest.mark.parametrize("explain", [False, True])
def test_both_mean_the_same_options(tmp_path: Path, arguments: list[str], explain: bool) -> None:
    given = options(tmp_path, *arguments)
    costs = MeasuredCost() if given.no_measure else cost_model_of(given, lambda *_: None)
    assert isinstance(costs, MeasuredCost)
    of_compile = {
        **sizes_of(given),
        "backends": given.backends,
        "precision": given.precision,
        "allow_winograd": not given.no_winograd,
        "search_layouts": given.search_layouts,
        "measure": not given.no_measure,
        "explain": explain,
        "refine": None,
        "memory_limit": given.memory_limit,
        "custom_op_libraries": libraries_at(given.custom_op_library),
        "objective": None,
        "eager": True,
    }
    assert keeping._asked(costs, given.target, of_compile).text() == kept._asked(given, explain).text()


@pytest.mark.parametrize(
    "arguments", [["--recompile"], ["--remeasure"], ["--locked"], ["--tune", "4"], ["--refine"], ["--breed", "9s"],
                  ["--rpc", "farm:9190"], ["--no-measure", "--percentile", "90"],
                  ["--device", "cpu:0", "--device", "cpu:1"]]
)  # fmt: skip
def test_some_options_are_for_compile_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(kept, "place_for", lambda *_: pytest.fail("a kept program was looked for"))
    assert kept.kept(options(tmp_path, *arguments), False) is None


@pytest.mark.parametrize(("stops", "kept_digests"), [(False, ["digest"]), (True, [])])
def test_a_compile_that_the_user_has_stopped_is_not_what_the_next_one_finds(
    stops: bool, kept_digests: list[str]
) -> None:
    found: list[str] = []
    place: Any = Namespace(keep=lambda digest, *_: found.append(digest))
    program: Any = Namespace()
    costs = MeasuredCost()
    if stops:
        costs.stop()
    keeping.Keeping(place).keep("digest", None, None, program, Answers(), costs)
    assert found == kept_digests


@pytest.mark.parametrize(("seconds", "is_kept"), [(60.0, True), (-60.0, False)])
def test_weights_that_change_during_a_compile_are_not_those_of_its_program(
    tmp_path: Path, seconds: float, is_kept: bool
) -> None:
    """The compile began a minute before or after the file of weights was written. The model names it as before."""
    path, weights = tmp_path / "model.onnx", onnx.numpy_helper.from_array(np.ones(4, "float32"), "w")
    onnx.external_data_helper.set_external_data(weights, location="weights")
    weights.ClearField("raw_data")
    (tmp_path / "weights").write_bytes(np.ones(4, "float32").tobytes())
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> m (float[4] x) => (float[4] y) { y = Add (x, w) }'
    )
    model.graph.initializer.append(weights)
    path.write_bytes(model.SerializeToString())
    found: list[str] = []
    place: Any = Namespace(keep=lambda digest, *_: found.append(digest))
    program: Any = Namespace()
    digest = digest_of_file(path)
    compiles = keeping.Keeping(place, began=time.time() + seconds)
    compiles.keep(digest, path, read_onnx(path), program, Answers(), MeasuredCost())
    assert found == [digest] * is_kept
