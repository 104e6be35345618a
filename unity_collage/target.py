"""Targets: the host by default, and which target and device a value belongs to.

TVM's plain ``llvm`` target means a generic CPU without vector units, so the host is described in full.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tvm import ir, relax
from tvm.runtime import Device, cpu
from tvm.runtime import cuda as cuda_device
from tvm.target import Target, codegen

from .errors import CollageError, first_line
from .runtime import cuda, num_threads
from .runtime.instruction_sets import lists_all, sets_in, unlisted

CUDA = "cuda"
"""TVM's name of the kind of targets that are NVIDIA GPUs."""

_LIMITS = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 48 << 10}

_TOOLCHAIN = ("libs", "compiler", "fusion_spec", "keys", "tag", "host")
"""Fields of a target that name tools; all other fields describe the hardware."""

_TVM = "tvm"
"""The backend of a target without ``libs``."""

TARGET = "target"
"""Attribute of a function: its target, as TVM names it. A kernel without one is for the target in scope."""

_LISTS = ("mattr", "keys", "libs")
"""Fields of a target that are lists, with commas in a text."""


_ADDED = ("keys", "tag", "host")
"""Fields that need not be written: TVM adds them."""


def host_target() -> Target:
    """The CPU that this process runs on, with all its instruction sets and the pool's number of threads.

    A virtual machine may hide instruction sets that this model of processor has: ``mattr`` takes these away.
    """
    hidden = [f"-{name}" for name in _hidden()]
    return Target({**_model(), **({"mattr": hidden} if hidden else {}), "num-cores": num_threads()})


def _model() -> dict[str, str]:
    """The model of this processor, with all that it has."""
    return {
        "kind": "llvm",
        "mtriple": codegen.llvm_get_system_triple(),
        "mcpu": codegen.llvm_get_system_cpu(),
    }


@cache
def _hidden() -> Sequence[str]:
    """The instruction sets of this model that the processor does not have here."""
    return unlisted(sets_in(codegen.llvm_get_cpu_features(Target(_model())))) if lists_all() else ()


def cuda_target() -> Target:
    """The first CUDA device of this machine, with the host; raises CollageError where there is none."""
    reason = cuda.why_unavailable()
    if reason is not None:
        raise CollageError(f"there is no CUDA device to compile for: {reason}")
    cuda.load()
    return with_host(Target.from_device("cuda"))


def target_of(target: Target | str | Mapping[str, Any]) -> Target:
    """A target from its fields, their JSON text, or a text such as ``llvm -mcpu=znver4``.

    ``cuda`` alone is the device of this machine; with ``-arch=sm_90`` it may be another one. Its host is this machine
    unless it names one. TVM 0.27 itself reads no options in a text. Raises CollageError with the reason in one line.
    """
    if isinstance(target, str) and target.strip() == CUDA:
        return cuda_target()
    made = target if isinstance(target, Target) else _target_of(target)
    return with_host(made) if made.kind.name == CUDA else made


def with_host(target: Target) -> Target:
    """A CUDA target with the processor that launches its kernels: this one, unless it names another.

    It also has the limits that all GPUs have, which schedules ask for. All of that is in its text.
    """
    host = fields_of(host_target() if target.host is None else target.host)
    host.pop("num-cores", None)  # no kernel runs on the host: costs hold for any number of its threads
    return Target({**_LIMITS, **fields_of(target), "host": host})


def device_of(target: Target) -> Device:
    """Where tensors of kernels for ``target`` are: the first CUDA device, or the CPU."""
    return cuda_device(0) if is_cuda(target) else cpu(0)


def is_cuda(target: Target) -> bool:
    """Whether kernels for ``target`` run on an NVIDIA GPU."""
    return target.kind.name == CUDA


def _target_of(target: str | Mapping[str, Any]) -> Target:
    try:
        fields = _fields_in(target) if isinstance(target, str) else dict(target)
        made = Target(fields)
    except (CollageError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise CollageError(f"{str(target)!r} is not a target: {first_line(error)}") from error
    cpu = made.attrs.get("mcpu")
    if made.kind.name == "llvm" and cpu and not codegen.llvm_is_valid_cpu(cpu, _triple(made)):
        raise CollageError(
            f"{str(target)!r} is not a target: LLVM knows no processor {str(cpu)!r} of {_triple(made)}"
        )
    return made


def current_target() -> Target:
    """The target in scope (``with target:``), or the host if there is none."""
    return Target.current(allow_none=True) or host_target()


def host_of(target: Target) -> Target:
    """The target of the CPU that calls the kernels: the host of a target for a GPU, if it names one."""
    return target if target.kind.name == "llvm" or target.host is None else target.host


def processor_of(target: Target) -> str:
    """The processor of a target, or of its host, as Linux names it, such as ``x86_64``."""
    name = _triple(host_of(target)).partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def fields_of(target: Target) -> dict[str, Any]:
    """The fields of a target, by name."""
    return json.loads(str(target))


def text_of(target: Target) -> str:
    """A target as it is written on a command line: ``llvm -mcpu=znver4``, without its host and what TVM adds."""
    fields = {
        name: value for name, value in fields_of(target).items() if name not in ("kind", *_ADDED) and value
    }
    options = (
        f"-{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in fields.items()
    )
    return " ".join([target.kind.name, *options])


def libs_of(target: Target) -> tuple[str, ...]:
    """The backends that a target names (``libs``), in preference order; empty where it names none."""
    return tuple(str(name) for name in target.attrs.get("libs") or ())  # with options, where they have some


def is_refinement_of(target: Target, other: Target) -> bool:
    """Whether ``target`` names backends, ``other`` names none, and they are for the same hardware."""
    return bool(libs_of(target)) and not libs_of(other) and _hardware(target) == _hardware(other)


def conveyed(
    targets: Sequence[Target], present: Sequence[Target] = ()
) -> tuple[Target, tuple[str, ...] | None]:
    """The target of unpartitioned code, and the backends that a list of targets names, in the order of the list.

    The first target is that of the program; code of no backend gets the least specialised target for the same hardware,
    one without ``libs`` if there is any. A target without ``libs`` among others stands for ``tvm``; alone it names no
    backends (None: all). Targets of other hardware are for values on virtual devices, whose targets are ``present``.

    Raises CollageError for an empty list, for a target twice, and for other hardware without such values.
    """
    if not targets:
        raise CollageError("no target was given: leave it out for this machine's processor")
    for number, target in enumerate(targets):
        if fields_of(target) in map(fields_of, targets[:number]):
            raise CollageError(f"target {text_of(target)} was given twice")
        if _hardware(target) != _hardware(targets[0]) and _hardware(target) not in map(_hardware, present):
            raise CollageError(
                f"{why_not_refined(target, targets[0])}, and no value has a virtual device with it: compile for one of "
                "them, or name where values are"
            )
    own = [target for target in targets if _hardware(target) == _hardware(targets[0])]
    base = next((target for target in own if not libs_of(target)), _without_libs(own[0]))
    names = [name for target in own for name in (libs_of(target) or (_TVM,))]
    return base, tuple(dict.fromkeys(names)) if any(map(libs_of, own)) else None


def _without_libs(target: Target) -> Target:
    return Target({name: value for name, value in fields_of(target).items() if name != "libs"})


def why_not_refined(target: Target, required: Target) -> str | None:
    """Why a kernel for ``target`` must not run where ``required`` is asked for, or None if it may.

    ``target`` refines ``required`` if the two agree in all fields but the toolchain (the Collage RFC, "FusionSpec").
    """
    ours, theirs = _hardware(target), _hardware(required)
    differing = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if not differing:
        return None
    return (
        f"target {text_of(target)} does not refine {text_of(required)}: they differ in {', '.join(differing)}"
    )


def devices_of(ty: ir.Type) -> Iterator[relax.VDevice]:
    """The virtual devices that a type names, field by field."""
    if isinstance(ty, relax.TupleType):
        for part in ty.fields:
            yield from devices_of(part)
    elif isinstance(ty, relax.TensorType) and ty.vdevice is not None:
        yield ty.vdevice


def device_text(ty: ir.Type) -> str | None:
    """The virtual devices that a type names, such as ``llvm:1``; None if it names none."""
    names = dict.fromkeys(
        f"{device.target.kind.name}:{device.vdevice_id}"
        + (f":{device.memory_scope}" if device.memory_scope != "global" else "")
        for device in devices_of(ty)
    )
    return " and ".join(names) or None


def device_target(ty: ir.Type) -> Target | None:
    """The target of the first virtual device that a type names, or None if it names none."""
    return next((device.target for device in devices_of(ty)), None)


def target_for(func: ir.BaseFunc, current: Target) -> Target:
    """The target of a function: its own, else ``current``."""
    return (func.attrs or {}).get(TARGET, current)


def _fields_in(text: str) -> dict[str, Any]:
    """The fields of a target that is JSON, or a kind and options: ``llvm -mcpu=znver4 -mattr=+avx512f,-amx-tile``."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    kind, *options = shlex.split(text) or [""]
    fields: dict[str, Any] = {"kind": kind}
    for option in options:
        name, equals, value = option.lstrip("-").partition("=")
        if not (option.startswith("-") and equals and name and value):
            raise CollageError(f"an option is -name=value, such as -mcpu=znver4, not {option!r}")
        fields[name] = _value(name, value)
    return fields


def _value(name: str, text: str) -> Any:
    if name in _LISTS:
        return text.split(",")
    return int(text) if text.lstrip("-").isdecimal() else text


def _triple(target: Target) -> str:
    return str(target.attrs.get("mtriple") or codegen.llvm_get_system_triple())


def _hardware(target: Target) -> dict[str, Any]:
    return {name: value for name, value in fields_of(target).items() if name not in _TOOLCHAIN}
