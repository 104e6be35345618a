"""Whole models that PyTorch runs operator by operator, as :mod:`unity_collage.frontend.pytorch.stored` writes them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from .threads import num_threads, park_threads
from .torch_tensors import exactly, exported, on_threads, own, places

_MOST_MODELS = 16
"""How many whole models a process has ready; another one takes the place of the first."""
_models: dict[str, _Model] = {}
"""Whole models, by the digests of their bytes."""


def run(torch: Any, digest: str, stored: Any, *operands: Any) -> Any:
    """The results of a whole model: one tensor, or an array of several.

    ``stored``: what :mod:`unity_collage.frontend.pytorch.stored` wrote, as a tensor of bytes with this ``digest``. The
    model runs on as many threads as kernels use. Nothing else of the program runs meanwhile.
    """
    model = _models.get(str(digest)) or _loaded(torch, str(digest), stored)
    tensors = [torch.from_dlpack(each) for each in operands]
    park_threads()
    with torch.inference_mode(), exactly(torch), on_threads(torch, num_threads()):
        results = own(torch, model(*tensors), model.places | places(tensors))
    made = [exported(each) for each in results]
    return made[0] if len(made) == 1 else made


def _loaded(torch: Any, digest: str, stored: Any) -> _Model:
    """The model in a tensor of bytes, which is ready from now on."""
    described = torch.load(io.BytesIO(torch.from_dlpack(stored).numpy()), weights_only=True)
    while len(_models) >= _MOST_MODELS:
        _models.pop(next(iter(_models)), None)
    model = _models[digest] = _Model(torch, described)
    return model


class _Model:
    """The code that PyTorch has written for a graph, and the values that it names."""

    def __init__(self, torch: Any, described: Mapping[str, Any]) -> None:
        self.places = set[int]()
        """Where the memory of the values is."""
        for name, value in described["values"].items():
            if isinstance(value, dict):  # a branch, the body of a loop
                value = _Model(torch, value)
                self.places |= value.places
            elif isinstance(value, torch.Tensor):
                self.places |= places([value])
            setattr(self, name, value)
        scope: dict[str, Any] = {}
        exec(described["code"], scope)  # a program is code, and this is a part of it
        self._forward = scope["forward"]

    def __call__(self, *operands: Any) -> Any:
        return self._forward(self, *operands)
