"""The networks of the GPU benchmark, with random weights of a fixed seed; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

SEED = 0
TOKENS = 128
"""The length of a sequence."""
_CALIBRATION = 4
"""Images that batch norms take their statistics from, so that activations have the sizes of a trained network."""


@dataclass(frozen=True)
class Network:
    """A module in evaluation mode with inputs, both on the CPU and in float32 or integers."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    is_image: bool


class _Hidden(nn.Module):
    """A transformer that takes tokens and returns its last hidden states alone."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__()
        self.model = model
        self.options = options

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, **self.options).last_hidden_state


def network(name: str, batch: int) -> Network:
    """The network ``name`` for ``batch`` inputs.

    Raises ModuleNotFoundError where its package is not installed.
    """
    torch.manual_seed(SEED)
    return _NETWORKS[name](batch)


def _draw_vectors(module: nn.Module) -> nn.Module:
    """Biases and the factors of norms, which are zeros and ones at first and would be folded away."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.02 * torch.randn_like(parameter))
    return module


def names() -> list[str]:
    """All networks."""
    return list(_NETWORKS)


def _of_torchvision(name: str) -> Callable[[int], Network]:
    def made(batch: int) -> Network:
        from torchvision import models  # pyright: ignore[reportMissingImports]

        return _image(getattr(models, name)(weights=None), batch, 224)

    return made


def _nasnet(batch: int) -> Network:
    import timm  # pyright: ignore[reportMissingImports]

    return _image(timm.create_model("nasnetalarge", pretrained=False), batch, 331)


def _image(module: nn.Module, batch: int, size: int) -> Network:
    _draw_vectors(module)
    _calibrate(module, torch.randn(_CALIBRATION, 3, size, size))
    return Network(module.eval(), (torch.randn(batch, 3, size, size),), is_image=True)


def _calibrate(module: nn.Module, images: torch.Tensor) -> None:
    """Give batch norms the statistics of ``images``."""
    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    module.eval()  # dropout stays off
    for norm in norms:
        norm.momentum = None  # the average of all batches since the reset
        norm.reset_running_stats()
        norm.train()
    with torch.no_grad():
        module(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def _bert(attention: str) -> Callable[[int], Network]:
    def made(batch: int) -> Network:
        from transformers import BertConfig, BertModel  # pyright: ignore[reportMissingImports]

        config = BertConfig(attn_implementation=attention)
        return _tokens(_Hidden(BertModel(config)), batch, config.vocab_size)

    return made


def _gpt2(batch: int) -> Network:
    from transformers import GPT2Config, GPT2Model  # pyright: ignore[reportMissingImports]

    config = GPT2Config(attn_implementation="sdpa", use_cache=False)
    return _tokens(_Hidden(GPT2Model(config), use_cache=False), batch, config.vocab_size)


def _tokens(module: nn.Module, batch: int, vocabulary: int) -> Network:
    _draw_vectors(module)
    return Network(module.eval(), (torch.randint(0, vocabulary, (batch, TOKENS)),), is_image=False)


_NETWORKS: dict[str, Callable[[int], Network]] = {
    "resnet50": _of_torchvision("resnet50"),
    "resnext50_32x4d": _of_torchvision("resnext50_32x4d"),
    "mobilenet_v2": _of_torchvision("mobilenet_v2"),
    "bert-base": _bert("sdpa"),
    "bert-base-eager": _bert("eager"),
    "gpt2": _gpt2,
    "nasnet": _nasnet,
}
