"""What a saved program says about itself, and whether that fits the process that loads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from .. import __version__, runtime
from ..calling.memory import CPU, CUDA
from ..calling.processor import instruction_sets
from ..calling.processor import why_not_here as why_not_this_processor
from ..calling.signature import Signature
from ..errors import CollageError
from ..runtime import cuda, libraries
from ..runtime.vendors import VENDORS, part_of, wheel_version
from ..runtime.virtual_machine import modules_in, runtimes_in

if TYPE_CHECKING:
    from tvm.target import Target

    from ..plan.plan import Plan
    from ..runtime.custom_op_libraries import CustomOpLibrary

_TVM, _TORCH = "apache-tvm", "torch"
"""The wheels of TVM and of PyTorch."""


class DeviceFacts(TypedDict):
    """What a saved program says about its GPU, as JSON."""

    kind: str
    """``cuda``."""
    capability: str
    """The compute capability that it was compiled for, such as ``9.0``."""
    name: str
    """The name of the GPU on which the program was compiled; empty if there was none."""
    backends: list[str]
    """The native backends of the kernels that it calls: they share one library of this package."""


class Facts(TypedDict):
    """The facts in the seal of a program, as JSON."""

    inputs: list[str] | None
    """The names of the inputs, if they are known."""
    signature: dict[str, Any] | None
    """What :meth:`Signature.to_json` wrote."""
    threads: int | None
    """How many threads it was measured and compiled for."""
    processor: str
    """As Linux names it, such as ``x86_64``; empty where the target is not known."""
    instruction_sets: list[str]
    """By LLVM's names."""
    libraries: dict[str, int]
    """The versions of the native libraries of this package that it calls, by their names: those of backends, or
    ``cuda``, and ``runtime``."""
    backends: list[str]
    """The native backends whose kernels it calls, inference runtimes included: several may share one library. Programs
    for a GPU have them in ``device``; those of before there were runtimes have a library for each."""
    wheels: dict[str, str]
    """The versions of TVM and of the vendor libraries that it calls, by the names of their wheels."""
    torch: list[str]
    """The operators of PyTorch that it calls. Older programs lack this field."""
    custom: list[str]
    """The operators for which it calls Python functions. Older programs lack this field."""
    custom_op_libraries: list[CustomOpLibrary]
    """The libraries of operators that ONNX Runtime registers for it. Older programs lack this field."""
    ffi: str
    """The version of TVM's FFI."""
    version: str
    """That of this package."""
    machine: dict[str, str]
    """The machine that compiled it, as in fingerprints of costs."""
    device: DeviceFacts | None
    """The GPU that it runs on; None for the CPU. Older programs lack this field."""
    devices: list[str]
    """The devices that it numbers, such as ``cpu:1``. Older programs lack this field."""
    plan: str
    """The plans, for :func:`plans_in`; compressed, since a process that runs the program does not read them."""


def facts_about(
    executable: Any,
    names: Sequence[str] | None = None,
    signature: Signature | None = None,
    threads: int | None = None,
    target: Target | None = None,
    machine: Mapping[str, str] | None = None,
    plans: Mapping[str, Plan] | None = None,
    device: str = CPU,
    *,
    devices: Sequence[str] = (),
    targets: Sequence[Target] = (),
) -> Facts:
    """The facts about a program that was compiled in this process; those that are not given are not known.

    ``targets``: all that its kernels are for, ``target`` among them. Raises CollageError for a program that calls other
    machines: it has connections of this process.
    """
    from ..runtime import custom_ops, remote_calls, torch_calls  # of a process that compiles
    from ..runtime.custom_op_libraries import libraries_in

    remote: list[str] = getattr(executable, remote_calls.NOTE, [])
    if remote:
        raise CollageError(
            f"a program with remote devices cannot be saved: it calls {', '.join(remote)} on other machines"
        )
    backends = runtimes_in(executable)
    vendors = [vendor.distribution for name in backends if (vendor := VENDORS[name]) is not None]
    torch: list[str] = getattr(executable, torch_calls.NOTE, [])
    versions = {wheel: wheel_version(wheel) for wheel in (_TVM, *vendors, *([_TORCH] if torch else []))}
    parts = dict.fromkeys(map(part_of, backends)) | dict.fromkeys([CUDA] if device == CUDA else [])
    return {
        "inputs": None if names is None else list(names),
        "signature": None if signature is None else signature.to_json(),
        "threads": threads,
        "processor": "" if target is None else _processor_of(target),
        "instruction_sets": sorted(
            {name for each in targets or _one(target) for name in instruction_sets(each)}
        ),
        "libraries": {name: int(libraries.version(name)) for name in ("runtime", *parts)},
        "backends": [] if device == CUDA else backends,
        "wheels": {wheel: version for wheel, version in versions.items() if version is not None},
        "torch": torch,
        "custom": getattr(executable, custom_ops.NOTE, []),
        "custom_op_libraries": libraries_in(modules_in(executable)) if "onnxruntime" in backends else [],
        "ffi": libraries.ffi_version(),
        "version": __version__,
        "machine": dict(machine or {}),
        "device": None if device == CPU or target is None else _device_facts(target, backends),
        "devices": list(devices),
        "plan": _packed(plans or {}),
    }


def plans_in(facts: Facts) -> dict[str, Plan]:
    """The plan of each function, with what its checker needs; empty where there was none."""
    # With what they need they take as long to import as a small program to load.
    import base64
    import zlib

    from ..plan.encoding import decode
    from ..plan.plan import Plan

    plans = json.loads(zlib.decompress(base64.b64decode(facts["plan"])))
    return {name: decode(Plan, plan) for name, plan in plans.items()}


def backends_in(facts: Facts) -> list[str]:
    """The native backends of the kernels that the program calls."""
    device = facts.get("device")
    if device:
        return device["backends"]
    return facts.get("backends", [name for name in facts["libraries"] if name != "runtime"])


def torch_calls_in(facts: Facts) -> list[str]:
    """The operators of PyTorch that the program calls."""
    return facts.get("torch", [])


def custom_ops_in(facts: Facts) -> list[str]:
    """The operators for which the program calls Python functions."""
    return facts.get("custom", [])


def custom_op_libraries_in(facts: Facts) -> list[CustomOpLibrary]:
    """The libraries of operators that ONNX Runtime registers for the program."""
    return facts.get("custom_op_libraries", [])


def device_in(facts: Facts) -> str:
    """Where the program runs: ``"cpu"`` or ``"cuda"``."""
    device = facts.get("device")
    return device["kind"] if device else CPU


def devices_in(facts: Facts) -> tuple[str, ...]:
    """The devices that the program numbers; empty where it does not say so: it runs on one."""
    return tuple(facts.get("devices", ()))


def _processor_of(target: Target) -> str:
    from ..target import processor_of  # with TVM's compiler

    return processor_of(target)


def _one(target: Target | None) -> list[Target]:
    return [] if target is None else [target]


def why_not_here(facts: Facts) -> str | None:
    """Why a program cannot run on this processor or with the installed libraries, or None; loads nothing.

    The program was measured and checked with the versions that it names. With another version of a library it may
    compute something else.
    """
    processor = facts["processor"]
    if processor not in ("", here := os.uname().machine):
        return f"it was compiled for {processor}, and this processor is {here}"
    return (
        why_not_this_processor(facts["instruction_sets"])
        or why_not_on_this_device(facts.get("device"))
        or _why_not_installed(facts)
    )


def why_not_on_this_device(needed: DeviceFacts | None) -> str | None:
    """Why a program for a GPU cannot run on the one here, or None."""
    if needed is None:
        return None
    if reason := cuda.why_unavailable():
        return f"it runs on a CUDA device: {reason}"
    if (here := cuda.capability()) == needed["capability"]:
        return None
    compiled = f"it was compiled for compute capability {needed['capability']}"
    model = f" ({needed['name']})" if needed["name"] else ""
    return f"{compiled}{model}, and {cuda.name()} has {here}: compile the model again"


def _why_not_installed(facts: Facts) -> str | None:
    for name in backends_in(facts):
        if reason := runtime.why_unavailable(name):
            return f"it needs {name}: {_pinned(reason, facts['wheels'])}"
    if reason := _why_no_operators(facts):
        return reason
    for wheel, needed in facts["wheels"].items():
        installed = wheel_version(wheel)
        if installed not in (None, needed):
            change = f"pip install {wheel}=={needed}, or compile the model again"
            return f"it was compiled with {wheel} {needed}, and {installed} is installed: {change}"
    return None


def _pinned(reason: str, wheels: Mapping[str, str]) -> str:
    """``reason`` with the version of the wheel that it says to install: another one would be refused too."""
    found = (f"{reason}=={version}" for wheel, version in wheels.items() if reason.endswith(f" {wheel}"))
    return next(found, reason)


def _why_no_operators(facts: Facts) -> str | None:
    """Why operators of PyTorch or of libraries of the user's are not here; most programs have none of either."""
    if operators := torch_calls_in(facts):
        from ..runtime import torch_calls

        if reason := torch_calls.why_unavailable(operators):
            return reason
    if registered := custom_op_libraries_in(facts):
        from ..runtime import custom_op_libraries

        return custom_op_libraries.why_not_here(registered)
    return None


def _device_facts(target: Target, backends: Sequence[str]) -> DeviceFacts:
    capability = _capability_of(str(target.attrs.get("arch", "")))
    is_here = cuda.why_unavailable() is None and cuda.capability() == capability
    name = cuda.name() if is_here else ""
    return {"kind": CUDA, "capability": capability, "name": name, "backends": list(backends)}


def _capability_of(arch: str) -> str:
    """``sm_90`` and ``sm_90a`` are of compute capability 9.0, ``sm_120`` is of 12.0."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return f"{digits[:-1]}.{digits[-1:]}"


def _packed(plans: Mapping[str, Plan]) -> str:
    import base64
    import zlib

    from ..plan.encoding import encode

    data = {name: encode(plan) for name, plan in plans.items()}
    return base64.b64encode(zlib.compress(json.dumps(data).encode())).decode()
