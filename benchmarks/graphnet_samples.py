"""Samples of GraphNet as modules with weights and inputs, and how torch runs them.

GraphNet (arXiv 2510.24035, https://github.com/PaddlePaddle/GraphNet) has graphs of published PyTorch models as Python
code. Weights are not in it, but the shape, dtype, mean and deviation of each. They are drawn here from a seed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from unity_collage.profile.peers.runtimes import Inputs, Peer, python_loop

_WEIGHT = re.compile(r"^L_self_|_parameters_|_buffers_|_modules_")
"""What the names of weights contain; all other tensors are inputs."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A graph that can be called."""

    module: torch.nn.Module
    inputs: Mapping[str, torch.Tensor]

    def call(self) -> list[torch.Tensor]:
        """The tensors that the module returns; it may write to its inputs, so it gets copies."""
        return tensors_of(self.module(*(value.clone() for value in self.inputs.values())))


def tensors_of(results: Any) -> list[torch.Tensor]:
    """The tensors among results of any structure, in order."""
    return [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def load(folder: Path, seed: int = 0) -> Sample:
    """The sample in a folder; it runs on the CPU."""
    graph = _names_in(_on_cpu((folder / "model.py").read_text()), folder / "model.py")["GraphModule"]
    described = _names_in((folder / "weight_meta.py").read_text(), folder / "weight_meta.py")
    metas = {
        each.name: each for each in described.values() if isinstance(each, type) and hasattr(each, "shape")
    }
    generator = torch.Generator().manual_seed(seed)
    known: dict[str, Any] = {}
    inputs: dict[str, torch.Tensor] = {}
    order = list(inspect.signature(graph.forward).parameters)[1:]
    for name in order:
        value = _drawn(name, metas[name], generator)
        is_weight = not isinstance(value, torch.Tensor) or _WEIGHT.search(name)
        (known if is_weight else inputs)[name] = value
    return Sample(_Closed(graph(), known, tuple(inputs), order).eval(), inputs)


def _on_cpu(code: str) -> str:
    """Graphs were traced on GPUs as well, and name them."""
    code = re.sub(r"device\(type=[\"']cuda[\"'](, index=\d+)?\)", "torch.device('cpu')", code)
    return re.sub(r"[\"']cuda(:\d+)?[\"']", "'cpu'", code)


def _names_in(code: str, path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {
        "torch": torch, "device": torch.device, "inf": float("inf"), "nan": float("nan"),
    }  # fmt: skip
    exec(compile(code, str(path), "exec"), names)  # the data set is code
    return names


def _drawn(name: str, meta: Any, generator: torch.Generator) -> Any:
    """The data of a tensor if the sample has it, else numbers of its distribution; a size is an int."""
    dtype, shape = getattr(torch, meta.dtype.removeprefix("torch.")), list(meta.shape)
    data = getattr(meta, "data", None)
    is_integer = not dtype.is_floating_point and dtype is not torch.bool
    if data is not None:
        is_size = name[0] in "sS" and not shape and is_integer
        return int(data[0]) if is_size else torch.tensor(data).to(dtype).reshape(shape)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if is_integer:
        return _integers(name, meta, shape, generator).to(dtype)
    scale, shift = (value if value is not None else other for value, other in _moments(meta))
    values = torch.randn(shape, generator=generator) * scale + shift
    return (values.abs() + 0.5 if "running_var" in name else values).to(dtype)


def _moments(meta: Any) -> list[tuple[float | None, float]]:
    return [(getattr(meta, "std", None), 1.0), (getattr(meta, "mean", None), 0.0)]


def _integers(name: str, meta: Any, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Positions are counted; other integers are drawn between the least and the largest."""
    if "ids" in name and len(shape) == 2 and "buffers" in name:
        return torch.arange(shape[1]).expand(shape).clone()
    low, high = getattr(meta, "min_val", None) or 0, getattr(meta, "max_val", None)
    return torch.randint(int(low), int(high) + 1 if high is not None else 2, shape, generator=generator)


class _Closed(torch.nn.Module):
    """A graph with its weights as buffers: only the inputs are left as arguments."""

    def __init__(
        self, graph: torch.nn.Module, known: Mapping[str, Any], inputs: tuple[str, ...], order: list[str]
    ) -> None:
        super().__init__()
        self._traced, self._names, self._order = graph, inputs, order
        self._numbers = {name: value for name, value in known.items() if not isinstance(value, torch.Tensor)}
        for name, value in known.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(f"w_{name}", value)

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = dict(zip(self._names, inputs, strict=True)) | self._numbers
        return self._traced(
            **{name: given[name] if name in given else getattr(self, f"w_{name}") for name in self._order}
        )


def eager(path: Path, inputs: Inputs, threads: int) -> Peer:
    """A sample as it is."""
    return _peer(load(path).module, inputs, threads)


def inductor(path: Path, inputs: Inputs, threads: int) -> Peer:
    """A sample by torch.compile, its weights frozen."""
    from torch._inductor import config

    config.freezing = True
    return _peer(torch.compile(load(path).module), inputs, threads)


def _peer(run: Any, inputs: Inputs, threads: int) -> Peer:
    torch.set_num_threads(threads)
    values = [torch.from_numpy(value) for value in inputs.values()]

    def outputs() -> list[np.ndarray]:
        with torch.no_grad():
            return [found.numpy() for found in tensors_of(run(*values))]

    loop = python_loop(lambda: run(*values))

    def timed(seconds: float) -> list[float]:
        with torch.no_grad():
            return loop(seconds)

    return Peer(timed, outputs)
