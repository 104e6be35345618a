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
    """Of the kernel alone, on the values that it gets in the model: the largest error over the range of a result;
    None where that is not known."""
    gain: float | None = None
    """Where programs are slow: by how many seconds a run is faster without this kernel, if it was asked alone."""
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
    """No kernel of these can be left out. Empty: the offloaded kernels are not the cause, and ``verdict`` says more."""
    verdict: str
    """What follows, in a sentence."""
    programs: int
    """How many programs were built and run."""
    failed: tuple[str, ...] = ()
    """Why programs could not be built or run; they count as those that are right."""
    errors: tuple[tuple[str, float | None], ...] = ()
    """The largest error of each of several programs: ``compiled`` is the one that was given, ``rebuilt`` has the same
    kernels; None where results cannot be subtracted. Empty where programs are timed."""
    seconds: tuple[tuple[str, float], ...] = ()
    """The median seconds of a run of the same programs, where they are timed."""
    wrote: tuple[str, ...] = ()
    """The files of the reproducer."""
