"""What a bisection has found, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ..inspection.bisection import Bisection, Suspect
from .cells import counted, duration

_TITLES = {"onnxruntime": "ONNX Runtime", "eager": "PyTorch", "tvm": "the program without offloads"}

_LAYERS = 4
"""How many bindings of a kernel are named."""


def bisection_summary(title: str, found: Bisection) -> str:
    """The verdict, the kernels, and the figures of the programs that it rests on."""
    return "\n".join(_lines(title, found))


def _lines(title: str, found: Bisection) -> Iterator[str]:
    yield f"{title}: {counted(found.offloaded, 'offloaded kernel')}, {counted(found.programs, 'program')} run"
    yield ""
    for name, error in found.errors:
        shown = "results that cannot be subtracted" if error is None else f"error {error:.1e} of the range"
        yield f"{name}: {shown} against {_TITLES[found.against]}"
    for name, seconds in found.seconds:
        yield f"{name}: {duration(seconds)}"
    yield from ("", found.verdict)
    for number, suspect in enumerate(found.suspects, 1):
        yield from ("", *_kernel(number, suspect))
    if found.failed:
        yield ""
        yield f"{counted(len(found.failed), 'reason')} why programs did not run; they count as right: {found.failed[0]}"
    if found.wrote:
        yield ""
        yield from (f"wrote {path}" for path in found.wrote)


def _kernel(number: int, suspect: Suspect) -> Iterator[str]:
    function = "" if suspect.function == "main" else f" of {suspect.function}"
    yield f"{number}. {suspect.backend} {suspect.label}{function}"
    more = ", ..." if len(suspect.bindings) > _LAYERS else ""
    yield f"   layers: {', '.join(suspect.bindings[:_LAYERS])}{more}"
    yield f"   tensors: {', '.join(suspect.shapes)}"
    if suspect.error is not None:
        yield f"   alone, on the same values: error {suspect.error:.1e} of the range against numpy"
    elif suspect.why_no_error:
        yield f"   its error alone is not known: {suspect.why_no_error}"
    if suspect.gain is not None:
        yield f"   a run without it is {duration(suspect.gain)} faster"
