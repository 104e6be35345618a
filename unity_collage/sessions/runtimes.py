"""The inference runtimes, and which of them are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .. import runtime
from ..defaults import UNROUNDED
from ..errors import CollageError
from .mnn import converted
from .module import Bytes


@dataclass(frozen=True, slots=True)
class InferenceRuntime:
    """A runtime that compiles whole models, with the settings that its users would give it."""

    name: str
    """Its name in ``backends`` and reports; the native part and the wheel have the same name."""
    title: str
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    in_bfloat16: Mapping[str, str] = field(default_factory=dict[str, str])
    """The additional settings for ``precision="bf16"``."""

    in_regions: Mapping[str, str] = field(default_factory=dict[str, str])
    """The additional settings for a part of a program: its threads must not spin while other kernels run."""

    narrowed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Element types of whole models that it computes in other ones, which have fewer digits."""

    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """What a user has asked for; it counts more than the other settings."""

    groups: tuple[str, ...] = ()
    """What the names of options begin with; empty: the runtime itself refuses names that it does not know."""

    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The values that each option may have, where ``groups`` are whole names; empty: any."""

    registers_libraries: bool = False
    """Whether it registers shared libraries with operators of the user's own."""

    convert: Callable[[bytes | Bytes], bytes] | None = None
    """Turns an ONNX model into its own format, with all sizes fixed; None: it reads ONNX models, and makes regions."""

    takes: tuple[str, ...] = ()
    """The element types of inputs and results that it passes as they are; empty: all."""

    def written(self, onnx: bytes | Bytes) -> bytes | Bytes:
        """A model in the format that it reads; raises ModelError where that is not possible."""
        return onnx if self.convert is None else self.convert(onnx)

    def with_options(self, options: Mapping[str, str]) -> InferenceRuntime:
        """The runtime with these ``options``; raises CollageError for one that it would ignore."""
        for key, value in options.items():
            is_known = key in self.choices if self.choices else not self.groups or key.startswith(self.groups)
            if not is_known:
                raise CollageError(
                    f"{self.title} has no option {key!r}: its configuration entries begin with {', '.join(self.groups)}"
                )
            if self.choices and value not in self.choices[key]:
                raise CollageError(
                    f"{self.title} has no {key} {value!r}: the values are {', '.join(self.choices[key])}"
                )
        return replace(self, options=options)

    def settings_for(self, precision: str, is_region: bool = False) -> dict[str, str]:
        """The settings for a precision of this package, for a whole model or for a region of one."""
        narrow = self.in_bfloat16 if precision == "bf16" else {}
        return {**self.settings, **narrow, **(self.in_regions if is_region else {}), **self.options}

    def why_unavailable(self) -> str | None:
        """Why it cannot be used here, or None; loads nothing of it."""
        return runtime.why_unavailable(self.name)

    def version(self) -> str:
        """The version of its wheel, and the options; a stored comparison holds for these only."""
        version = f"{self.title} {runtime.library_version(self.name)}"
        given = ", ".join(f"{key}={value}" for key, value in sorted(self.options.items()))
        return f"{version} with {given}" if given else version


_MODES = ("normal", "high", "low")
"""How MNN weighs memory, power and precision against time."""

RUNTIMES = {
    found.name: found
    for found in (
        # By default both round what they multiply by weights of 8 bits to 8 bits, which is off by half a percent.
        InferenceRuntime(
            "onnxruntime",
            "ONNX Runtime",
            UNROUNDED,
            # Without this its threads spin for milliseconds after a run.
            in_regions={"session.force_spinning_stop": "1"},
            groups=("session.", "optimization.", "mlas.", "ep."),
            registers_libraries=True,
        ),
        # By default it computes float32 models in bfloat16 on processors that have it.
        InferenceRuntime(
            "openvino",
            "OpenVINO",
            {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
            {"INFERENCE_PRECISION_HINT": "bf16"},
            narrowed={"float64": "float32"},
        ),
        # By default it may compute in fewer digits on processors that have them.
        InferenceRuntime(
            "mnn",
            "MNN",
            {"precision": "high"},
            narrowed={"float64": "float32", "int64": "int32", "uint64": "int32", "uint32": "int32"},
            groups=("memory", "power", "precision"),
            choices={"memory": _MODES, "power": _MODES, "precision": (*_MODES, "Low_BF16")},
            convert=converted,
            takes=("float32", "int32"),
        ),
    )
}
"""By name, in the order in which they are tried: the first builds its programs fastest, so there is time for others."""


def available(names: Sequence[str] | None = None) -> list[InferenceRuntime]:
    """The runtimes among ``names`` that can be used here; without names: among all."""
    wanted = RUNTIMES.values() if names is None else [RUNTIMES[name] for name in names]
    return [found for found in wanted if found.why_unavailable() is None]
