"""What a kept program is found by: the model, the options, the code, the packages, the settings."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

from unity_collage import runtime
from unity_collage.frontend.onnx.reading import files_of_weights
from unity_collage.kept import models
from unity_collage.kept import surroundings as around
from unity_collage.kept.asked import AskedOptions
from unity_collage.kept.models import digest_of_file, digest_of_module
from unity_collage.kept.surroundings import surroundings

ASKED = AskedOptions(target="", backends=None, shapes={"image": (1, 3, 8, 8)}, dims=None, precision="f32",
              allow_winograd=True, search_layouts=False, measure=True, method="2 percentile=50", packs=True,
              unlimited=False, explain=False)  # fmt: skip


def module(values: Any = (1.0, 2.0), name: str = "x", shape: tuple[int, ...] = (4, 2)) -> IRModule:
    builder, x = relax.BlockBuilder(), relax.Var(name, relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.add(x, R.const(np.float32(values))))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize(
    "other", [module((1.0, 2.5)), module(name="image"), module(shape=(2, 2)), module([[1.0, 2.0]])]
)
def test_modules_differ_in_values_names_and_types(other: IRModule) -> None:
    digest = digest_of_module(module(), ["x"])
    assert digest == digest_of_module(module(), ["x"]) is not None
    assert digest != digest_of_module(other, ["x"])
    assert digest != digest_of_module(module(), ["y"])


def test_a_file_differs_by_any_byte_even_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"model")
    before = digest_of_file(path)
    status = path.stat()
    other = tmp_path / "other"
    other.write_bytes(b"modem")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    assert digest_of_file(path) != before
    assert digest_of_file(tmp_path / "nothing") is None


def test_files_of_weights_are_found_in_branches_and_functions() -> None:
    def outside(name: str) -> onnx.TensorProto:
        tensor = onnx.TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{name}.bin")
        return tensor

    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=outside("inner"))], "branch", [], []
    )
    node = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([node], "main", [], [], [outside("weights")])
    called = helper.make_function(
        "my", "f", [], ["c"], [helper.make_node("Constant", [], ["c"], value=outside("of_function"))], []
    )
    model = helper.make_model(graph, functions=[called])
    assert files_of_weights(model) == ["inner.bin", "of_function.bin", "weights.bin"]


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "cuda"}, {"backends": ["tvm"]}, {"shapes": {"image": (1, 3, 9, 8)}}, {"dims": {"batch": 2}},
        {"precision": "bf16"}, {"allow_winograd": False}, {"search_layouts": True}, {"measure": False},
        {"method": "2 percentile=90"}, {"packs": False}, {"unlimited": True}, {"explain": True}, {"refine": "R"},
    ],
)  # fmt: skip
def test_each_option_counts(changes: dict[str, Any]) -> None:
    assert replace(ASKED, **changes).text() != ASKED.text() is not None


def test_a_range_is_its_ends_and_other_objects_cannot_be_told_apart() -> None:
    of_range = [replace(ASKED, shapes={"n": range(1, end)}).text() for end in (8, 9)]
    assert len({None, *of_range}) == 3
    assert replace(ASKED, shapes={"n": np.int64(3)}).text() == replace(ASKED, shapes={"n": 3}).text()
    assert replace(ASKED, shapes={"n": iter([1, 2])}).text() is None


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is as it was when the process began, whoever edits it meanwhile."""
    monkeypatch.setattr(around, "_code", lambda: "code")


def test_packages_settings_threads_and_code_count(code: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [surroundings("")]
    monkeypatch.setattr(around, "_packages", lambda: ["apache_tvm-9.9.dist-info"])
    seen.append(surroundings(""))
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    seen.append(surroundings(""))
    monkeypatch.setattr(runtime, "num_threads", lambda: 77)
    seen.append(surroundings(""))
    monkeypatch.setattr(around, "_code", lambda: "edited")
    seen.append(surroundings(""))
    assert all(seen[i] != seen[j] for i in range(len(seen)) for j in range(i))


def test_each_library_of_tvm_counts(code: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler may be built again, and the runtime next to it stay as it is."""
    names = ("libtvm_compiler.so", "libtvm_runtime.so")
    for name in names:
        (tmp_path / name).write_bytes(b"library")
    monkeypatch.setattr(around, "tvm_runtime", lambda: tmp_path / "libtvm_runtime.so")
    found = [surroundings("")]
    for name in names:
        (tmp_path / name).write_bytes(b"another library")
        found.append(surroundings(""))
    assert all(one != other for one, other in pairwise(found))


def test_code_that_has_changed_under_a_process_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module.py").write_text("x = 1\n")
    monkeypatch.setattr(around, "_roots", lambda: [tmp_path])
    monkeypatch.setattr(around, "_began", lambda: time.time() + 100)
    before = around._code.__wrapped__()
    (tmp_path / "module.py").write_text("x = 2\n")
    assert around._code.__wrapped__() != before is not None
    monkeypatch.setattr(around, "_began", lambda: time.time() - 100)
    assert around._code.__wrapped__() is None
    monkeypatch.setattr(around, "_code", lambda: None)
    assert surroundings("") is None


def test_a_plug_in_counts_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy-1.0.dist-info").mkdir()
    points = "[console_scripts]\ntoy = other:main\n[unity_collage.backends]\ntoy = toy_backend.value:TOY\n"
    (tmp_path / "toy-1.0.dist-info" / "entry_points.txt").write_text(points)
    (tmp_path / "toy_backend").mkdir()
    (tmp_path / "toy_backend" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(around, "_installed", around._installed.__wrapped__)
    assert tmp_path / "toy_backend" in around._roots()
    assert "toy-1.0.dist-info" in around._packages()


def test_a_time_limit_of_the_user_is_not_a_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest of gigabytes takes seconds, in which a signal handler may raise TimeoutError."""

    def late(*_: object) -> str:
        raise TimeoutError("of the user")

    (tmp_path / "model.onnx").touch()
    monkeypatch.setattr(models, "_digest_of_file", late)
    with pytest.raises(TimeoutError, match="of the user"):
        digest_of_file(tmp_path / "model.onnx")
