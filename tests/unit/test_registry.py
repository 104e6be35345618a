"""Backends of other packages come through entry points; whatever is wrong with one is a row and stops no command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import tvm
from rich.console import Console
from tvm import relax
from tvm.target import Target

from unity_collage.backends import registry
from unity_collage.backends.base import Backend
from unity_collage.cli.main import main
from unity_collage.cost import fingerprint
from unity_collage.cost.method import Method
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError, UnavailableBackend, UnknownBackend
from unity_collage.report import backend_table
from unity_collage.sessions import RUNTIMES
from unity_collage.testing.fake_backend import fake_backend

OURS = ["onednn", "openblas", "kernels", "cudnn", "cublas", "tvm", "tvm_openblas", "openvino", "onnxruntime",
        "mnn", "torch"]  # fmt: skip

FAKE = """
from unity_collage.testing.fake_backend import fake_backend
BACKEND = fake_backend("theirs", "relax.nn.relu")
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package ``their_package`` whose one module has this text, under these entry points."""

    def planted(text: str, **points: str) -> None:
        site = package(tmp_path / "site", text, **points)
        monkeypatch.syspath_prepend(str(site))
        _forget()

    yield planted
    monkeypatch.undo()
    _forget()


def package(site: Path, text: str, name: str = "their_package", **points: str) -> Path:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{point} = {value}\n" for point, value in points.items())
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n{lines}")
    (site / f"{name}.py").write_text(text)
    return site


def _forget() -> None:
    sys.modules.pop("their_package", None)
    registry.known.cache_clear()
    registry._installed.cache_clear()


def row(name: str) -> str:
    (found,) = [backend.state for backend in registry.statuses() if backend.name == name]
    return found


def is_available(name: str) -> bool:
    return name in {backend.name for backend in registry.select(None, Target("llvm"))}


def test_ours_come_first_and_then_those_of_other_packages(install: Install) -> None:
    install(FAKE, theirs="their_package:BACKEND")
    assert list(registry.known()) == [*OURS, "theirs"]
    assert row("theirs") == "available: theirs 1.0"
    assert is_available("theirs")


BROKEN = {
    "no module": ("", "no_such_module:BACKEND", "ModuleNotFoundError: No module named 'no_such_module'"),
    "no name": ("", "their_package:BACKEND", "AttributeError: module 'their_package' has no attribute"),
    "no form": ("", "their package!", "'their package!' is not of the form module:name"),
    "raises": ("raise RuntimeError('no licence\\nfound')", "their_package:B", "RuntimeError: no licence"),
    "does not parse": ("def", "their_package:BACKEND", "SyntaxError: invalid syntax"),
    "exits": ("import sys; sys.exit(3)", "their_package:BACKEND", "SystemExit: 3"),
    "ends quietly": ("raise SystemExit", "their_package:BACKEND", "importing it failed: SystemExit"),
    "own exception": ("class E(BaseException): ...\nraise E('bad')", "their_package:BACKEND", "E: bad"),
    "text": ("BACKEND = 'theirs'", "their_package:BACKEND", "it is a str, not a Backend"),
    "module": ("", "their_package", "it is a module, not a Backend"),
    "no text as name": (FAKE + "from dataclasses import replace\nBACKEND = replace(BACKEND, name=None)",
                        "their_package:BACKEND", "its name is None, not a text"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "value", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plug_in_is_a_row_and_nothing_else(
    install: Install, caplog: pytest.LogCaptureFixture, text: str, value: str, reason: str
) -> None:
    install(text, theirs=value)
    assert list(registry.known()) == OURS
    assert row("theirs").startswith(f"broken: {value}: ")
    assert reason in row("theirs")
    assert not is_available("theirs")
    with pytest.raises(
        UnavailableBackend, match=r"backend theirs cannot be used here: .* is broken: "
    ) as error:
        registry.select(["theirs"], Target("llvm"))
    assert reason in str(error.value)
    assert [(record.levelname, reason in record.getMessage()) for record in caplog.records] == [
        ("WARNING", True)
    ]


PRINTING = {
    "python": "print('hello')",
    "descriptor": "import os; os.write(1, b'hello\\n')",
    "C": "import ctypes; ctypes.CDLL(None).puts(b'hello')",
    "a child": "import subprocess; subprocess.run(['echo', 'hello'])",
}


@pytest.mark.parametrize("text", PRINTING.values(), ids=PRINTING)
def test_what_an_import_prints_does_not_come_out_on_standard_output(
    install: Install, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    install(text + FAKE, theirs="their_package:BACKEND")
    assert row("theirs") == "available: theirs 1.0; importing it printed on standard output"
    assert is_available("theirs")
    print("mine")
    out, err = capfd.readouterr()
    assert (out, "hello\n" in err) == ("mine\n", True)


def test_a_stream_that_was_kept_during_the_import_is_standard_output_later(
    install: Install, capfd: pytest.CaptureFixture[str]
) -> None:
    install("import sys; OUT = sys.stdout" + FAKE, theirs="their_package:BACKEND")
    assert row("theirs") == "available: theirs 1.0"
    print("later", file=sys.modules["their_package"].OUT)
    assert capfd.readouterr().out == "later\n"


def test_the_working_directory_is_the_one_from_before(install: Install, tmp_path: Path) -> None:
    before = Path.cwd()
    install(f"import os; os.chdir({str(tmp_path)!r})" + FAKE, theirs="their_package:BACKEND")
    assert "available: theirs 1.0; importing it changed the working directory" in row("theirs")
    assert Path.cwd() == before
    assert is_available("theirs")


def test_a_plug_in_that_fails_says_all_that_it_did(install: Install, tmp_path: Path) -> None:
    before = Path.cwd()
    install(f"import os; os.chdir({str(tmp_path)!r}); print(1); 1 / 0", theirs="their_package:BACKEND")
    for part in ("ZeroDivisionError", "changed the working directory", "printed on standard output"):
        assert part in row("theirs")
    assert Path.cwd() == before


def test_the_working_directory_may_be_gone(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    install("import os; os.chdir('/')" + FAKE, theirs="their_package:BACKEND")
    assert "available" in row("theirs")


def test_ctrl_c_is_not_a_broken_plug_in(install: Install) -> None:
    install("raise KeyboardInterrupt", theirs="their_package:BACKEND")
    with pytest.raises(KeyboardInterrupt):
        registry.known()


def test_one_broken_plug_in_leaves_the_others(install: Install) -> None:
    install(FAKE, broken="no_such_module:BACKEND", theirs="their_package:BACKEND")
    assert (row("theirs"), is_available("theirs")) == ("available: theirs 1.0", True)
    assert "ModuleNotFoundError" in row("broken")


def test_a_package_whose_entry_points_cannot_be_read_leaves_the_others(
    install: Install, tmp_path: Path
) -> None:
    install(FAKE, theirs="their_package:BACKEND")
    package(tmp_path / "site", "", "odd_package")
    (tmp_path / "site" / "odd_package-1.0.dist-info" / "entry_points.txt").write_text(
        "[a.b]\nno equals sign\n"
    )
    assert is_available("theirs")
    assert "its entry_points.txt cannot be read: " in row("odd_package")


def _raise() -> str | None:
    raise OSError("no such driver")


ANSWERS = {
    "raises": (_raise, "its why_unavailable failed: OSError: no such driver"),
    "empty": (lambda: "", "its why_unavailable answers '', neither None nor a reason"),
    "false": (lambda: False, "its why_unavailable answers False, neither None nor a reason"),
    "exits": (sys.exit, "its why_unavailable failed: SystemExit"),
}


@pytest.mark.parametrize(("answer", "reason"), ANSWERS.values(), ids=ANSWERS)
def test_a_backend_that_cannot_say_whether_it_is_available_is_not(
    monkeypatch: pytest.MonkeyPatch, answer, reason: str
) -> None:
    odd = Backend("odd", lambda _target: None, answer, lambda: "odd 1.0")
    monkeypatch.setattr(registry, "known", lambda: {"odd": odd})
    assert row("odd") == f"not available: {reason}"
    assert registry.select(None, Target("llvm")) == ()
    with pytest.raises(UnavailableBackend, match="backend odd cannot be used here: its why_unavailable"):
        registry.usable("odd")


VERSIONS = {
    "raises": ("1 / 0", "its fingerprint failed: ZeroDivisionError: division by zero"),
    "empty": ("' '", "its fingerprint is ' '"),
    "number": ("7", "its fingerprint is 7"),
}


@pytest.mark.parametrize(("answer", "reason"), VERSIONS.values(), ids=VERSIONS)
def test_a_plug_in_without_a_version_is_not_available(install: Install, answer: str, reason: str) -> None:
    replaced = f"from dataclasses import replace\nBACKEND = replace(BACKEND, fingerprint=lambda: {answer})\n"
    install(FAKE + replaced, theirs="their_package:BACKEND")
    assert row("theirs") == f"not available: {reason}"
    assert not is_available("theirs")
    assert "theirs" not in fingerprint.available(Method())


DUPLICATE = FAKE.replace('"theirs"', '"onednn"')
TWICE = "two backends are named 'onednn': one of unity_collage, one of their_package:BACKEND"


def test_a_name_of_two_backends_is_an_error_where_it_is_used(install: Install) -> None:
    install(DUPLICATE, theirs="their_package:BACKEND")
    uses = [
        lambda: registry.select(None, Target("llvm")),
        lambda: registry.select(["onednn"], Target("llvm")),
        lambda: registry.select(None, Target({"kind": "llvm", "libs": ["onednn"]})),
        lambda: registry.get("onednn"),
    ]
    for use in uses:
        with pytest.raises(CollageError, match=TWICE):
            use()


def test_a_name_of_two_backends_leaves_the_others(install: Install) -> None:
    install(DUPLICATE, theirs="their_package:BACKEND")
    assert [backend.name for backend in registry.select(["tvm"], Target("llvm"))] == ["tvm"]
    assert registry.get("tvm").name == "tvm"
    assert list(registry.every()) == [name for name in OURS if name != "onednn"]
    assert row("onednn") == f"not available: {TWICE}"


def test_backends_make_kernels_for_the_kind_of_the_target() -> None:
    gpu = Target({"kind": "cuda", "arch": "sm_90"})
    assert [name for name in OURS if registry.why_not_for(registry.get(name), gpu) is None] == [
        "cudnn", "cublas", "tvm"
    ]  # fmt: skip
    assert not {"cudnn", "cublas"} & {backend.name for backend in registry.select(None, Target("llvm"))}
    with pytest.raises(UnavailableBackend, match="it makes kernels for llvm, and the target is cuda"):
        registry.select(["onednn"], gpu)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(
        UnknownBackend,
        match="no backend named 'mkl'; there are: onednn, openblas, kernels, cudnn, cublas, tvm",
    ):
        registry.get("mkl")


def test_the_command_shows_broken_plug_ins(install: Install, capfd: pytest.CaptureFixture[str]) -> None:
    install("import sys; print('{}'); sys.exit(1)", theirs="their_package:BACKEND", none="no_such_module:B")
    assert main(["backends"]) == 0
    backends, _, _ = capfd.readouterr().out.partition("library (newest")
    assert [line.split()[0] for line in backends.splitlines()[:-1] if line[1:2].strip()] == [
        "backend", *OURS, "none", "theirs"
    ]  # fmt: skip


def test_other_commands_run_with_broken_plug_ins(tmp_path: Path) -> None:
    exiting = "import os, sys; os.chdir('/'); print('{}'); sys.exit(1)"
    site = package(tmp_path / "site", exiting, theirs="their_package:BACKEND")
    package(tmp_path / "site", DUPLICATE, "another_package", again="another_package:BACKEND")
    database = tmp_path / "costs.sqlite"
    with CostDatabase(database):
        pass
    module = ["-m", "unity_collage.processes.launcher", "unity_collage.cli.main"]
    done = subprocess.run(
        [sys.executable, *module, "db", "info", "--database", str(database)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])},
        cwd=tmp_path,
    )
    assert (done.returncode, "{}" in done.stdout) == (0, False), done.stderr
    assert "costs.sqlite" in done.stdout


def test_names_and_reasons_are_no_markup() -> None:
    console = Console(width=80)
    with console.capture() as shown:
        console.print(backend_table([registry.BackendStatus("[b]", "broken: [/red] is no tag")]))
    assert "[b]" in shown.get()
    assert "[/red] is no tag" in shown.get()


def test_ours_declare_the_version_of_their_kernels() -> None:
    assert all(registry.known()[name].version >= 1 for name in OURS)


def test_code_generators_are_reachable_for_stock_tvm() -> None:
    asked: list[list[relax.Function]] = []

    def codegen(functions, _options, _constants):
        asked.append(list(functions))
        return []

    registry.register_codegens([fake_backend("toy_for_stock", codegen=codegen)])
    assert list(tvm.get_global_func("relax.ext.toy_for_stock")([], {}, {})) == []
    assert asked == [[]]


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_is_asked_for_regions_only_where_it_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unity_collage.sessions import InferenceRuntime

    monkeypatch.setattr(InferenceRuntime, "why_unavailable", lambda _self: None)
    target = Target("llvm")
    assert name not in [backend.name for backend in registry.select(None, target)]
    assert [backend.name for backend in registry.select([name], target)] == [name]


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_that_is_missing_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from unity_collage.sessions import InferenceRuntime

    monkeypatch.setattr(InferenceRuntime, "why_unavailable", lambda _self: "it is missing: pip install it")
    assert row(name) == "not available: it is missing: pip install it"
    with pytest.raises(UnavailableBackend, match=f"backend {name} cannot be used here: it is missing"):
        registry.usable(name)


def test_exclusions_are_those_that_one_of_the_two_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: fake_backend(name) for name in ("one", "two", "three")}
    made["two"] = replace(made["two"], excludes=frozenset({"one", "absent", "two"}))
    monkeypatch.setattr(registry, "find", made.get)
    assert registry.excluding(["one", "two", "three", "view"]) == ("one|two",)
    assert registry.excluding(["two", "three"]) == ()
