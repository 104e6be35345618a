"""Modules of TorchScript as programs: in memory and from files, with example inputs or with shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.errors import ModelError
from unity_collage.kept import surroundings

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

IMAGE = torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).reshape(2, 3, 8, 8) / 100


class Network(nn.Module):
    """Branches on its mode and on sizes, a loop, a buffer, and an argument with a default."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.blocks = nn.ModuleList([nn.Conv2d(4, 4, 1) for _ in range(2)])
        self.register_buffer("shift", torch.ones(4, 1, 1))

    def forward(self, image: torch.Tensor, scale: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.norm(self.stem(image))
        for block in self.blocks:
            x = torch.relu(block(x)) + self.shift
        if self.training:
            x = x * 0
        if image.shape[0] > 1:
            x = x * scale
        return x, x.mean((2, 3))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids).sum(1)


class Data(nn.Module):
    """Its branch depends on the numbers."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image + 1 if bool(image.sum() > 0) else image - 1


def scripted(module: nn.Module, how: str) -> Any:
    if how == "traced":
        return torch.jit.trace(module.eval(), (IMAGE,))
    script = torch.jit.script(module)
    return torch.jit.freeze(script.eval()) if how == "frozen" else script


def saved(module: Any, path: Path) -> Path:
    torch.jit.save(module, path)
    return path


def assert_agrees(program: uc.Program, module: nn.Module, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        want = module.eval()(*inputs)
    have = program(*inputs)
    pairs = zip(
        [have] if hasattr(have, "shape") else have, want if isinstance(want, tuple) else [want], strict=True
    )
    for one, other in pairs:
        np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("how", ["traced", "scripted", "frozen"])
def test_a_module_of_torchscript_is_a_model(how: str) -> None:
    module = Network()
    script = scripted(module, how)
    script(IMAGE)
    if how == "scripted":
        script.train()
    program = uc.compile(script, (IMAGE,), measure=False)
    assert program.input_names == ("image",)
    assert_agrees(program, module, IMAGE)
    if how == "scripted":
        assert script.training


def test_a_file_of_torchscript_takes_shapes(tmp_path: Path) -> None:
    module = Network()
    path = saved(scripted(module, "scripted"), tmp_path / "network.pt")
    assert_agrees(uc.compile(path, shapes={"image": (2, 3, 8, 8)}, measure=False), module, IMAGE)
    assert_agrees(uc.compile(path, (IMAGE[:1],), measure=False), module, IMAGE[:1])


def test_indexes_are_int64(tmp_path: Path) -> None:
    module = Tokens()
    path = saved(scripted(module, "scripted"), tmp_path / "tokens.torchscript")
    program = uc.compile(path, shapes={"ids": (2, 5)}, measure=False)
    assert_agrees(program, module, torch.tensor([[1, 2, 3, 9, 0], [4, 4, 4, 5, 6]]))


def test_a_kept_program_of_a_file_is_told_apart_by_example_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surroundings, "_code", lambda: "code")  # or nothing is kept where the code changes
    module = Network()
    path = saved(scripted(module, "scripted"), tmp_path / "network.pt")
    with tvm.transform.PassContext():
        for image in (IMAGE, IMAGE[:1], IMAGE):
            program = uc.compile(path, (image,), measure=False, database=tmp_path / "costs.sqlite")
            assert_agrees(program, module, image)
    assert program.kept_since is not None


def test_without_sizes_a_line_says_what_is_missing(tmp_path: Path) -> None:
    path = saved(scripted(Network(), "scripted"), tmp_path / "network.pt")
    with pytest.raises(ModelError, match=r"there is no shape for image: .* --shape image=1,3,224,224"):
        uc.compile(path, measure=False)


def test_a_branch_on_numbers_is_refused_with_its_line() -> None:
    with pytest.raises(ModelError, match=r"(?s)data-dependent.*in the line .*image\.sum\(\)"):
        uc.compile(torch.jit.script(Data()), (IMAGE,), measure=False)


def test_a_wrong_shape_is_refused_with_the_line_of_the_program() -> None:
    with pytest.raises(ModelError, match=r"cannot take this module: .* in the line .*conv2d"):
        uc.compile(torch.jit.script(Network()), (IMAGE[:, :2],), measure=False)


def test_a_file_of_weights_is_refused(tmp_path: Path) -> None:
    torch.save(Network().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ModelError, match=r"holds objects that torch\.save wrote"):
        uc.compile(tmp_path / "weights.pt", measure=False)


def test_an_exported_program_has_its_own_suffix(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Network().eval(), (IMAGE,)), tmp_path / "network.pt2")
    (tmp_path / "network.pt2").rename(tmp_path / "network.pt")
    with pytest.raises(ModelError, match=r"is no module of TorchScript: .* ends in \.pt2"):
        uc.compile(tmp_path / "network.pt", measure=False)


def test_the_command_compares_with_pytorch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(saved(scripted(Network(), "scripted"), tmp_path / "network.pt"))
    code = cli.main(["compile", path, "--shape", "image=2,3,8,8", "--no-measure", "--verify", "random"])
    assert code == 0
    assert capfd.readouterr().out.count("against torch-eager: ") == 2
