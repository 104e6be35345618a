"""Command lines whose words contradict each other, and where in them an argument may stand."""

from __future__ import annotations

import itertools
from importlib import import_module
from pathlib import Path

import pytest

from unity_collage.cli import load_tvm
from unity_collage.cli import main as cli
from unity_collage.cli.exit_codes import FAILED, USAGE

WITHOUT_COSTS = "needs costs, and --no-measure has none: leave one of the two out"
MODEL = "there.onnx"

CONTRADICTIONS = {
    f"compile {MODEL} --breed 3s": "--breed needs --refine, which compares whole programs",
    f"compile {MODEL} --rpc-key board": "--rpc-key needs --rpc, whose servers have the key",
    f"compile {MODEL} --tolerance 0": "--tolerance needs --verify, which compares results",
    f"compile {MODEL} --locked --remeasure": "--locked measures nothing, and --remeasure measures again",
    f"compile {MODEL} --memory-limit 1MB --refine": "--memory-limit is for the plan of the search",
    f"compile {MODEL} --refine --percentile 90": "--refine times kernels in running programs by medians",
    f"compile {MODEL} --bundle b --device cpu:0 --device cpu:1": "--bundle is for programs on one device",
    f"compile {MODEL} --rpc board:9190 --target llvm": "--target and --rpc: the target is that of the servers",
    f"compile {MODEL} --precision f16": "--precision f16 is for GPUs: add --target cuda, or take bf16",
    f"compile {MODEL} --precision tf32 --target llvm": "--precision tf32 is for GPUs",
    f"compile {MODEL} --shape n=1 --shape n=2": "--shape gives n two sizes: 1 and 2",
    f"compile {MODEL} --dim n=1 --dim n=2": "--dim gives n two sizes: 1 and 2",
    f"compile {MODEL} --no-measure --report p.json": "--report explains costs, and --no-measure has none",
    f"compile {MODEL} --backends onednn,tvn": "--backends: no backend named 'tvn'; did you mean tvm? There are: ",
    f"compile {MODEL} --dry-run --backends tvn": "--backends: no backend named 'tvn'; did you mean tvm?",
    f"profile {MODEL} --backends tvn": "--backends: no backend named 'tvn'; did you mean tvm?",
    f"diff {MODEL} there.json --first-options=--backends=tvn": "--backends: no backend named 'tvn'",
    f"diff {MODEL} there.json --first-options=--target=llvm --breed 3s": "--breed needs --refine",
    f"diff {MODEL} there.json --second-options=--refine": "--second-options are for a model",
    f"diff {MODEL} there.json --no-measure --tune 3": f"--tune {WITHOUT_COSTS}",
    "diff there.json there.json --precision bf16": "--precision is for models, which are compiled, and neither",
    "diff there.json": "there.json is not a model: give a second file to compare it with",
    "diff there.json there.json --report d.json": "the name of the file ends in .html",
    "diff there.json there.py --report ./there.py": "--report ./there.py would overwrite there.py: choose another",
    f"bench {MODEL} --against onnxruntim": "no such runtime; did you mean onnxruntime? There are: ",
    f"bisect {MODEL} --slow --against tvm": "--against is for wrong results, and --slow times programs",
    f"compare {MODEL} --plan there.json --tune 3": "compare uses the costs of kernels only: leave --refine, ",
    f"explain {MODEL} --refine": "explain shows the plan of the search, and --refine compares programs",
    f"explain {MODEL} --recompile": "--recompile is for programs, and explain makes none: leave it out",
    f"compare {MODEL} --plan there.json --recompile": "--recompile is for programs, and compare makes none",
    f"profile {MODEL} --trace -": "--trace - is not possible",
    f"profile {MODEL} --model {MODEL}": "--model is for saved programs",
    "profile there.so": "there.so is not a model (.onnx, .pt2 or .pt)",
    "check onednn --annotated there.py": "--annotated is for plans, and onednn is not a file with plans",
    f"check onednn --model {MODEL}": "--model is for plans, and onednn is not a file with plans",
    f"check there.json --annotated there.py --model {MODEL}": "both say what was searched: leave one of the two",
    "check there.json --backends tvm": "--backends is for a model: name the model with --model",
    "check there.json --precision bf16": "--precision is for a model: name the model with --model",
    "check onednn --database c.sqlite": "--database is for a model: name the model with --model",
    "check there.json --cases a.b:C": "--cases is for backends, and there.json is a file with plans",
    "check there.json --timeout 5s": "--timeout is for backends, and there.json is a file with plans",
    f"compile {MODEL} -o m.onnx": "--output m.onnx: the name of the file ends in .so",
    f"compile {MODEL} --report none/p.txt": "the name of the file ends in .html, .json, .onnx or .dot",
    f"compile {MODEL} --report ./{MODEL}": f"--report ./{MODEL} would overwrite {MODEL}: choose another name",
    f"compile {MODEL} --report a.json --bundle a.json": "--report a.json would overwrite a.json: choose another name",
    f"compile {MODEL} --custom-op-library there.so -o ./there.so": "--output ./there.so would overwrite there.so",
    f"bind {MODEL} a=1 -o ./{MODEL}": f"--output ./{MODEL} would overwrite {MODEL}: choose another name",
    f"bind {MODEL} a=1 -o bound.so": "--output bound.so: the name of the file ends in .onnx",
    f"profile {MODEL} --trace {MODEL}": f"--trace {MODEL} would overwrite {MODEL}: choose another name",
    f"bisect {MODEL} -o case.so": "--output case.so: the name of the file ends in .onnx",
    "db export c.sqlite --database ./c.sqlite": "c.sqlite would overwrite ./c.sqlite: choose another name",
    "check onedn": "no backend named 'onedn'; did you mean onednn? There are: ",
    "db prune": "say what to remove: --older-than, --stale, ",
    "examples alexnet": "no example is called 'alexnet'; there are: small, ",
    "examples -o small.onnx": "name the example to write",
    "examples small -o small.so": "the name of the file ends in .onnx",
}
NO_COSTS = ("search-layouts", "tune=3", "refine", "remeasure", "rpc=a:1", "memory-limit=1MB", "percentile=90")
NOT_DRY = ("output=m.so", "bundle=m", "report=p.json", "verify=random", "no-measure", "tune=3", "refine",
           "memory-limit=1MB", "remeasure", "device=cpu:1", "recompile")  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (MODEL, "there.json", "there.so", "there.py"):
        (tmp_path / name).write_text("{}")
    load_tvm()
    return tmp_path


def said(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command, and its only line."""
    code = cli.main([*(word.replace("_-", " -") for word in words.split()), "-q"])
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    return code, line


@pytest.mark.parametrize("words", CONTRADICTIONS)
def test_a_contradiction_is_a_wrong_command_line(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = said(words, capsys)
    assert code == USAGE and CONTRADICTIONS[words] in line


@pytest.mark.parametrize("option", NO_COSTS)
@pytest.mark.parametrize("command", ["compile", "bench", "profile", "bisect"])
def test_what_needs_costs_is_refused_without(
    command: str, option: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = said(f"{command} {MODEL} --no-measure --{option}", capsys)
    assert (code, line) == (USAGE, f"unity-collage: --{option.partition('=')[0]} {WITHOUT_COSTS}")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("profile", "profile is for programs on CPUs, since it times kernels one by one"),
        ("bisect", "bisect is for programs on CPUs, since it leaves kernels to TVM one by one"),
        ("compile --bundle b", "--bundle is for programs on CPUs"),
        ("bench --rounds 3", "--rounds is for runtimes in turns, and on a GPU the program runs alone"),
    ],
)
def test_what_no_gpu_can_do_is_found_before_anything_is_compiled(
    words: str, reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words.split(), MODEL, "--target", "cuda -arch=sm_90", "-q"]) == USAGE
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("words", ["compile --verify random", "bisect"])
def test_a_program_that_could_not_run_here_is_not_compiled_to_be_compared(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = said(f"{words} {MODEL} --target llvm_-mtriple=riscv64-linux-gnu", capsys)
    assert code == FAILED and "it is for riscv64, and this processor is" in line


@pytest.mark.parametrize("option", NOT_DRY)
def test_a_dry_run_takes_no_option_that_it_would_not_follow(
    option: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = said(f"compile --dry-run --{option} {MODEL}", capsys)
    assert code == USAGE and " and --dry-run: a dry run measures nothing and builds nothing" in line


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("compile their.onnx", "their.onnx is not a file; did you mean there.onnx?"),
        (f"compile {MODEL} -o none/m.so", "--output none/m.so cannot be written: there is no folder none"),
        (f"compile {MODEL}", "there.onnx is not an ONNX model"),
        ("explain there.so", "there.so is not a model but a saved program: name the .onnx or .pt2 file"),
        (f"compile {MODEL} --verify none.npz", "none.npz is not a file"),
        ("db merge none.sqlite", "none.sqlite"),
        ("db import none.jsonl", "none.jsonl is not a file"),
        ("db info --database none.sqlite", "none.sqlite"),
        ("info there.so", "there.so"),
        ("check none.json", "none.json"),
    ],
)  # fmt: skip
def test_what_depends_on_files_and_machines_is_a_failure(
    words: str, reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = said(words, capsys)
    assert code == FAILED and reason in line


def test_a_file_that_cannot_be_read_is_found_before_tvm_is_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_collage.cli.files.os.access", lambda path, _: path != MODEL)
    monkeypatch.setattr("unity_collage.cli.main.load_for", lambda _: pytest.fail("TVM is loaded"))
    line = f"unity-collage: {MODEL} cannot be read: permission denied"
    assert said(f"explain {MODEL}", capsys) == (FAILED, line)


def test_a_misspelt_backend_is_found_without_a_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_tvm()
    monkeypatch.setattr(
        import_module("unity_collage.testing.conformance.examine"),
        "Subject",
        lambda *_: pytest.fail("a process"),
    )
    code, line = said("check ondnn", capsys)
    assert code == USAGE and "no backend named 'ondnn'; did you mean onednn?" in line


LISTED = [["m.onnx"], ["--backends", "onednn", "tvm"], ["-o", "m.so"], ["--budget", "3s"]]


@pytest.mark.parametrize("parts", list(itertools.permutations(LISTED)))
def test_a_model_stands_anywhere(parts: tuple[list[str], ...]) -> None:
    options = cli.parser_of("compile").parse_args(["compile", *itertools.chain(*parts)])
    found = (options.model, options.backends, options.output, options.budget)
    assert found == ("m.onnx", ["onednn", "tvm"], "m.so", 3.0)


def test_arguments_keep_their_order_and_what_follows_two_dashes() -> None:
    parse = cli.parser_of().parse_args
    options = parse(["diff", "b.so", "-q", "a.json"])
    assert (options.first, options.second, options.quiet) == ("b.so", "a.json", True)
    assert parse(["diff", "--backends", "tvm", "b.onnx", "a.onnx"]).second == "a.onnx"
    assert parse(["compile", "-q", "--", "-m.onnx"]).model == "-m.onnx"
    assert parse(["db", "export", "-q", "-"]).file == "-"


def test_lists_have_one_grammar() -> None:
    parse = cli.parser_of().parse_args
    for words in ("crash hang", "crash,hang", "crash --release hang", "crash, --release crash,hang"):
        assert parse(["db", "prune", "--release", *words.split()]).release == ["crash", "hang"]
    assert parse(["compile", "m.onnx", "-o", "m.so", "--output", "m.so"]).output == "m.so"
