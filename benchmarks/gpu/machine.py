"""The GPU and the libraries of a run, and which peers there are not."""

from __future__ import annotations

import subprocess
from importlib import metadata, util
from typing import Any

_FIELDS = (
    "name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.draw", "pstate",
)  # fmt: skip
_PACKAGES = (
    "torch",
    "triton",
    "torchvision",
    "transformers",
    "timm",
    "apache-tvm",
    "apache-tvm-ffi",
    "unity_collage",
)


def gpu() -> dict[str, str]:
    """The state of the first GPU by ``nvidia-smi``; a single entry ``reason`` if it reports nothing."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader", "--id=0"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return {"reason": f"nvidia-smi says nothing: {error}"}
    values = [value.strip() for value in found.stdout.strip().splitlines()[0].split(",")]
    return dict(zip(_FIELDS, values, strict=False))


def versions() -> dict[str, str]:
    """The versions of the libraries that are installed, those of NVIDIA too."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name and (name in _PACKAGES or name.startswith("nvidia-")):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def torch_facts() -> dict[str, Any]:
    """The version of torch, and the CUDA and cuDNN that it runs with."""
    import torch  # pyright: ignore[reportMissingImports]

    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def missing_peers() -> dict[str, str]:
    """The peers that are not timed, with the reason."""
    missing = {"TensorRT": _why_not("tensorrt"), "ONNX Runtime, CUDA": _why_not_onnxruntime()}
    return {
        name: reason or "installed, but this benchmark does not have it yet"
        for name, reason in missing.items()
    }


def _why_not(package: str) -> str | None:
    return None if util.find_spec(package) else f"the package {package} is not installed"


def _why_not_onnxruntime() -> str | None:
    if reason := _why_not("onnxruntime"):
        return reason
    import onnxruntime  # pyright: ignore[reportMissingImports]

    providers = onnxruntime.get_available_providers()
    return None if "CUDAExecutionProvider" in providers else "the installed package is without CUDA"
