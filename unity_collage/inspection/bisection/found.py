"""What a bisection has found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suspect:
    """An offloaded kernel that is in the smallest set."""

    function: str
    """The function of the model that it is in: ``main``, or a variant for sizes."""
    backend: str
    label: str
    """Its operators."""
    bindings: tuple[str, ...]
    """The bindings of the source model that it computes, which are its layers."""
    shapes: tuple[str, ...] = ()
    """The types of the tensors that it reads and writes, such as ``float32[1, 64]``; the results come last."""
    error: float | None = None
    """The largest error of the kernel alone, as a part of a result's range, on the values that it gets in the model.

    None if it is not known.
    """
    gain: float | None = None
    """For slow programs: by how many seconds a run is faster without this kernel, if the kernel was tried alone."""
    why_no_error: str = ""
    """Why the error of the kernel alone is not known."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """The smallest set of offloaded kernels that makes the results wrong, or a run slow."""

    against: str
    """What the programs are compared with: ``onnxruntime``, ``eager``, or ``tvm``, the program without offloads."""
    offloaded: int
    """How many kernels of the plan are not TVM's."""
    suspects: tuple[Suspect, ...]
    """No kernel can be left out of this set.

    If it is empty, the offloaded kernels are not the cause; see ``verdict``.
    """
    verdict: str
    """The conclusion in one sentence."""
    programs: int
    """How many programs were built and run."""
    failed: tuple[str, ...] = ()
    """Why programs could not be built or run; these programs count as right."""
    errors: tuple[tuple[str, float | None], ...] = ()
    """The largest error of each of several programs: ``compiled`` is the one that was given, ``rebuilt`` has the same
    kernels; None where results cannot be subtracted. Empty where programs are timed."""
    seconds: tuple[tuple[str, float], ...] = ()
    """The median seconds of a run of the same programs, where they are timed."""
    wrote: tuple[str, ...] = ()
    """The files of the reproducer."""
