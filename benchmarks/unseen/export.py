"""Make the light graphs of this folder: architectures that nothing here was tuned for, weights as notes to draw.

usage: export.py OUT_FOLDER [--free] [NAME ...]

With ``--free`` those of ``FREE`` are made, which leave sizes open, for the folder ``sized``. Needs torch, timm,
transformers and onnxscript. Batch 1, inference mode, constants folded, opset 18. Running statistics of batch norms
are those of one random batch, so that values neither vanish nor explode; then every weight of more than ``INLINE``
elements becomes a note: name, shape, seed, mean and standard deviation, from which ``zoo_models.load(name, folder)``
draws it.
"""

from __future__ import annotations

import json
import sys
import types
import warnings
import zlib
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import architectures  # pyright: ignore[reportMissingImports]
import numpy as np
import onnx
import torch  # pyright: ignore[reportMissingImports]
from onnx import numpy_helper
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.export import Dim  # pyright: ignore[reportMissingImports]

INLINE = 48
"""Weights of at most this many elements are kept as they are, among them shapes and scalars."""

SEQUENCE = 64


class Nothing(type):
    """A class that has every attribute, but dunders."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class NoTorchvision(MetaPathFinder, Loader):
    """Empty modules in place of torchvision: timm imports names of it, and none of them runs here."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "torchvision":
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        def attribute(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return Nothing(name, (nn.Module,), {})

        module.__getattr__ = attribute


def timm_model(name: str) -> tuple[nn.Module, torch.Tensor]:
    """An image classifier of timm."""
    if not any(isinstance(finder, NoTorchvision) for finder in sys.meta_path):
        sys.meta_path.insert(0, NoTorchvision())
    import timm  # pyright: ignore[reportMissingImports]

    return timm.create_model(name, exportable=True), torch.randn(architectures.IMAGE)


class Hidden(nn.Module):
    """A language model of transformers from token ids to its first result."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, use_cache=False, return_dict=False)[0]


def distilgpt2() -> tuple[nn.Module, torch.Tensor]:
    """DistilGPT2's decoder with its causal mask, prefill of 64 tokens; a table of 8,192 entries."""
    import transformers  # pyright: ignore[reportMissingImports]

    config = transformers.GPT2Config(n_layer=6, vocab_size=8192, attn_implementation="eager")
    return Hidden(transformers.GPT2LMHeadModel(config)), torch.randint(0, 8192, (1, SEQUENCE))


def t5_small_encoder() -> tuple[nn.Module, torch.Tensor]:
    """T5-small's encoder: RMS norm, relative position bias; a table of 8,192 entries."""
    import transformers  # pyright: ignore[reportMissingImports]

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = transformers.T5Config(vocab_size=8192, d_model=512, d_ff=2048, num_layers=6, num_heads=8)
            self.model = transformers.T5EncoderModel(config)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=ids, return_dict=False)[0]

    return Encoder(), torch.randint(0, 8192, (1, SEQUENCE))


def bert_base() -> tuple[nn.Module, torch.Tensor]:
    """BERT-base: the hidden states of tokens; a table of 8,192 entries."""
    import transformers  # pyright: ignore[reportMissingImports]

    config = transformers.BertConfig(vocab_size=8192, attn_implementation="eager")
    return Hidden(transformers.BertModel(config, add_pooling_layer=False)), torch.randint(
        0, 8192, (2, SEQUENCE)
    )


def _doubled(made: tuple[nn.Module, torch.Tensor]) -> tuple[nn.Module, torch.Tensor]:
    """The example twice: torch fixes sizes that are 1."""
    model, value = made
    return model, torch.cat([value, value])


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "bilstm_tagger": architectures.bilstm_tagger,
    "convnext_tiny": lambda: timm_model("convnext_tiny"),
    "dcgan": architectures.dcgan,
    "densenet121": lambda: timm_model("densenet121"),
    "distilgpt2": distilgpt2,
    "efficientnet_b0": lambda: timm_model("efficientnet_b0"),
    "ghostnet_100": lambda: timm_model("ghostnet_100"),
    "hrnet_w18_small": lambda: timm_model("hrnet_w18_small"),
    "mobilenetv3_large_100": lambda: timm_model("mobilenetv3_large_100"),
    "mobilevit_s": lambda: timm_model("mobilevit_s"),
    "regnety_008": lambda: timm_model("regnety_008"),
    "shufflenet_v2": architectures.shufflenet_v2,
    "t5_small_encoder": t5_small_encoder,
    "unet": architectures.unet,
    "yolov5n": architectures.yolov5n,
}

FREE: dict[str, tuple[Callable[[], tuple[nn.Module, torch.Tensor]], dict[int, Any]]] = {
    "bert_base": (bert_base, {0: Dim("batch"), 1: Dim("length", max=512)}),
    "crnn": (architectures.crnn, {3: 4 * Dim("columns", min=2)}),
    "resnet50": (lambda: _doubled(timm_model("resnet50")), {0: Dim("batch")}),
    "t5_small_encoder": (lambda: _doubled(t5_small_encoder()), {0: Dim("batch"), 1: Dim("length")}),
    "yolov5n": (architectures.yolov5n, {2: 32 * Dim("rows", min=2), 3: 32 * Dim("columns", min=2)}),
}
"""Models that leave sizes of their input open: axes and their sizes."""


def exported(name: str, free: bool) -> onnx.ModelProto:
    """The whole ONNX model."""
    torch.manual_seed(zlib.crc32(name.encode()))
    make, sizes = FREE[name] if free else (MODELS[name], None)
    model, value = make()
    without_constants(model)
    settled(model, value)
    with TemporaryDirectory() as folder, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            model.eval(),
            (value,),
            path,
            opset_version=18,
            input_names=["x"],
            output_names=["y"],
            dynamo=True,
            external_data=False,
            dynamic_shapes=None if sizes is None else (sizes,),
            verbose=False,
        )
        return onnx.load(path)


def without_constants(model: nn.Module) -> None:
    """Biases of zeros, norms of ones and layer scales of 1e-6 become what training makes of them: all different.

    Constants would be folded away, which a trained model does not allow.
    """
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.numel() > 1 and float(parameter.detach().std()) == 0.0:
                centre = 0.0 if name == "bias" else 0.1 if name == "gamma" else 1.0
                parameter.data = centre + 0.05 * torch.randn_like(parameter)


def settled(model: nn.Module, value: torch.Tensor) -> None:
    """Batch norms take the statistics of one batch."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    model.eval()
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        model(torch.randn(4, *value.shape[1:]))


def is_table(value: np.ndarray) -> bool:
    """Whether values repeat, as in a mask: no weight that could be drawn."""
    return 1 < len(np.unique(value)) < value.size // 4


def lightened(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with its float weights as notes; variances stay positive when they are drawn."""
    variances = {node.input[4] for node in model.graph.node if node.op_type == "BatchNormalization"}
    notes, kept = [], []
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype != np.float32 or value.size <= INLINE or is_table(value):
            kept.append(tensor)
            continue
        mean, std = float(value.mean()), float(value.std())
        if tensor.name in variances:
            std = min(std, mean / 8)
        seed = zlib.crc32(tensor.name.encode())
        notes.append(
            {
                "name": tensor.name,
                "shape": list(value.shape),
                "mean": round(mean, 9),
                "std": round(std, 9),
                "seed": seed,
            }
        )
    del model.graph.initializer[:], model.graph.value_info[:], model.metadata_props[:]
    model.graph.initializer.extend(kept)
    for part in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    entry = model.metadata_props.add()
    entry.key, entry.value = "weights", json.dumps(notes)
    return model


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    free = "--free" in arguments
    for name in [each for each in arguments[1:] if each != "--free"] or (FREE if free else MODELS):
        path = folder / f"{name}.onnx"
        onnx.save(lightened(exported(name, free)), path)
        sys.stdout.write(f"{name:24s} {path.stat().st_size / 1e3:8.1f} kB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
