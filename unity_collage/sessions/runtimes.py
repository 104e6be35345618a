"""The inference runtimes, and which of them are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import runtime


@dataclass(frozen=True, slots=True)
class InferenceRuntime:
    """A runtime that compiles whole models, with the settings that its users would give it."""

    name: str
    """By which ``backends`` and reports call it; the native part and the wheel have the same name."""
    title: str
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    in_bfloat16: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is added for ``precision="bf16"``."""

    def settings_for(self, precision: str) -> dict[str, str]:
        """The settings for a precision of this package."""
        return {**self.settings, **(self.in_bfloat16 if precision == "bf16" else {})}

    def why_unavailable(self) -> str | None:
        """Why it cannot be used here, or None; loads nothing of it."""
        return runtime.why_unavailable(self.name)

    def version(self) -> str:
        """The version of its wheel, which is part of what a comparison holds for."""
        return f"{self.title} {runtime.library_version(self.name)}"


RUNTIMES = {
    found.name: found
    for found in (
        # By default it computes float32 models in bfloat16 on processors that have it.
        InferenceRuntime(
            "openvino",
            "OpenVINO",
            {"INFERENCE_PRECISION_HINT": "f32"},
            {"INFERENCE_PRECISION_HINT": "bf16"},
        ),
        InferenceRuntime("onnxruntime", "ONNX Runtime"),
    )
}
"""By name, in the order in which they are asked: on most networks of the zoo the first is the faster one."""


def available(names: Sequence[str] | None = None) -> list[InferenceRuntime]:
    """Those of ``names`` that can be used here; without names: of all."""
    wanted = RUNTIMES.values() if names is None else [RUNTIMES[name] for name in names]
    return [found for found in wanted if found.why_unavailable() is None]
