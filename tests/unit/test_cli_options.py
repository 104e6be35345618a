"""What the shared options mean: ``--rpc``, ``--rpc-key``, ``--refine`` and ``--breed``."""

from __future__ import annotations

import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage import making
from unity_collage.cli.options import add_options
from unity_collage.cli.settings import check_backends, cost_model_of, pipeline_of, refinement_of
from unity_collage.errors import CollageError
from unity_collage.frontend.models import LastResorts
from unity_collage.measure.measured import MeasuredCost
from unity_collage.measure.remote import RemoteCost
from unity_collage.pipeline import Pipeline
from unity_collage.target import host_target
from unity_collage.testing import graphs


def options(tmp_path: Path, *arguments: str) -> Namespace:
    parser = ArgumentParser()
    add_options(parser)
    database = str(tmp_path / "costs.sqlite")
    return parser.parse_args(["model.onnx", "--database", database, "--budget", "30s", *arguments])


def test_without_rpc_this_machine_measures(tmp_path: Path) -> None:
    model = cost_model_of(options(tmp_path), lambda *_: None)
    assert type(model) is MeasuredCost and model.budget_seconds == 30.0 and model.packs


def test_a_compile_may_be_cold_whatever_packs_there_are(tmp_path: Path) -> None:
    model = cost_model_of(options(tmp_path, "--no-packs"), lambda *_: None)
    assert type(model) is MeasuredCost and not model.packs


def test_with_rpc_the_servers_of_the_key_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unity_collage.cli.settings.why_no_tracker", lambda _: None)
    model = cost_model_of(options(tmp_path, "--rpc", "farm:9190", "--rpc-key", "board"), lambda *_: None)
    assert isinstance(model, RemoteCost) and (model.tracker, model.key) == ("farm:9190", "board")
    assert model.budget_seconds == 30.0 and model.database is not None
    assert model.database.path == tmp_path / "costs.sqlite"


def test_an_address_without_a_port_shows_the_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(tmp_path, "--rpc", "farm")
    assert "write host:port" in capsys.readouterr().err


def test_a_tracker_that_does_not_answer_is_told_at_once(tmp_path: Path) -> None:
    with (
        socket.socket() as taken,
        pytest.raises(CollageError, match=r"--rpc: no tracker answers at 127\.0\.0\.1:"),
    ):
        taken.bind(("127.0.0.1", 0))  # and does not listen
        cost_model_of(options(tmp_path, "--rpc", f"127.0.0.1:{taken.getsockname()[1]}"), lambda *_: None)


def test_costs_of_another_machine_cannot_be_refined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteCost, "target", lambda _: host_target())
    model = RemoteCost(uc.CostDatabase(tmp_path / "costs.sqlite"))
    with pytest.raises(
        CollageError, match="candidate programs cannot be compared: RemoteCost cannot run whole programs"
    ):
        uc.compile(IRModule({"main": graphs.chain()}), estimator=model, refine=uc.Refinement())


def test_breeding_is_part_of_a_refinement() -> None:
    bred = refinement_of(Namespace(refine=True, breed=600.0))
    assert bred is not None and bred.breeding is not None and bred.breeding.seconds == 600.0
    assert refinement_of(Namespace(refine=True, breed=None)) == uc.Refinement()
    assert refinement_of(Namespace(refine=False, breed=None)) is None


def test_several_targets_name_backends(tmp_path: Path) -> None:
    found = options(tmp_path, "--target", "llvm -libs=onednn,openblas", "--target", "llvm")
    assert found.backends == ["onednn", "openblas", "tvm"]
    assert "libs" not in str(found.target)


def test_one_target_names_no_backends_beside_it(tmp_path: Path) -> None:
    assert options(tmp_path, "--target", "llvm -libs=onednn").backends is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--target", "llvm", "--target", "llvm"], "was given twice"),
        (["--target", "llvm", "--target", "llvm -mcpu=znver4"], "they differ in mcpu"),
        (["--target", "llvm -libs=onednn", "--target", "llvm", "--backends", "tvm"], "leave one out"),
        (["--backends", "tvm", "--target", "llvm -libs=onednn", "--target", "llvm"], "leave one out"),
    ],
)
def test_targets_that_contradict_each_other_are_refused(
    tmp_path: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(tmp_path, *arguments)
    assert reason in capsys.readouterr().err


def test_a_target_is_told_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["llvm -mtriple=x86_64-linux-gnu -mattr=+avx2,+fma -libs=onednn"] * 2
    with pytest.raises(SystemExit):
        options(tmp_path, *(each for word in words for each in ("--target", word)))
    assert f"target {words[0]} was given twice" in capsys.readouterr().err


def test_names_are_a_list_with_spaces_or_commas_or_the_option_once_more(tmp_path: Path) -> None:
    for given in (["tvm", "onednn"], ["tvm,onednn"], ["tvm", "--backends", "onednn"], ["tvm,", "onednn,tvm"]):
        assert options(tmp_path, "--backends", *given).backends == ["tvm", "onednn"]


def test_pytorch_is_named_as_other_backends_are(tmp_path: Path) -> None:
    for names in (("tvm", "torch"), ("torch",)):
        found = options(tmp_path, "--backends", *names)
        check_backends(found)
        assert pipeline_of(found).backends == names
    assert pipeline_of(options(tmp_path)).backends is None


@pytest.mark.parametrize(
    ("pipeline", "has_torch"),
    [
        (Pipeline(), True),
        (Pipeline(backends=("tvm",)), False),
        (Pipeline(backends=("tvm", "torch")), True),
    ],
)
def test_other_commands_import_a_model_as_compile_does(
    pipeline: Pipeline, has_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[LastResorts] = []

    def read(*_: object, last_resorts: LastResorts, **__: object) -> None:
        found.append(last_resorts)
        raise CollageError("enough")

    monkeypatch.setattr(making, "import_model", read)
    with pytest.raises(CollageError, match="enough"):
        making.imported_for("m.pt2", pipeline, host_target(), None, None)
    assert found[0].torch is has_torch
