"""Digests of what makes kernels of TVM, and the versions that were declared for them.

``python tests/unit/versions.py`` records them in ``versions.json``, after a version was raised or a graph was added.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.target import Target
from versioned_graphs import EXTRACTED, LOWERED, SCHEDULED

from unity_collage.backends.base import Backend
from unity_collage.backends.cublas import lowering as cublas_lowering
from unity_collage.backends.cublas.backend import CUBLAS
from unity_collage.backends.cudnn import lowering as cudnn_lowering
from unity_collage.backends.cudnn.backend import CUDNN
from unity_collage.backends.kernels import lowering as kernels_lowering
from unity_collage.backends.kernels.backend import KERNELS
from unity_collage.backends.native.codegen import Lower
from unity_collage.backends.onednn import lowering as onednn_lowering
from unity_collage.backends.onednn.backend import ONEDNN
from unity_collage.backends.openblas import lowering as openblas_lowering
from unity_collage.backends.openblas.backend import OPENBLAS
from unity_collage.cost.method import METHOD_VERSION
from unity_collage.graph import DataflowGraph, Signatures, SubGraph, extract, index_set, members, outside_vars
from unity_collage.graph.extract import EXTRACTION_VERSION
from unity_collage.graph.shapes import shape_of
from unity_collage.lowering.fuse import fused
from unity_collage.lowering.outline import Group, global_var, outline
from unity_collage.lowering.outlined import external_function, kernel_function, primitive_function
from unity_collage.measure.judge import trials
from unity_collage.plan.candidate import Candidate, CompositePart
from unity_collage.rules import Found
from unity_collage.schedule import SCHEDULE_VERSION
from unity_collage.schedule.gpu import GPU_SCHEDULE_VERSION
from unity_collage.testing.conformance import CASES

RECORDED = Path(__file__).with_name("versions.json")

TARGETS = {
    mcpu: Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu, "num-cores": 2})
    for mcpu in ("znver4", "x86-64-v3")
}
"""Said in full, so that nothing depends on the machine that asks."""

GPU = Target(
    {
        "kind": "cuda",
        "arch": "sm_90",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
        "host": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"},
    }
)

NATIVE: dict[str, tuple[Backend, Lower]] = {
    "onednn": (ONEDNN, onednn_lowering.lower),
    "openblas": (OPENBLAS, openblas_lowering.lower),
    "kernels": (KERNELS, kernels_lowering.lower),
    "cudnn": (CUDNN, cudnn_lowering.lower),
    "cublas": (CUBLAS, cublas_lowering.lower),
}
"""Backends that tell a native library what to compute, as JSON."""

Digests = dict[str, str]


@dataclass(frozen=True, slots=True)
class Subject:
    """Something with a declared version."""

    name: str
    version: int
    digests: Digests
    constant: str
    """What declares the version, and where."""


def subjects() -> list[Subject]:
    """All there are, as they are now."""
    schedule, of_gpus, extraction = (
        "SCHEDULE_VERSION in unity_collage/schedule/__init__.py",
        "GPU_SCHEDULE_VERSION in unity_collage/schedule/gpu.py",
        "EXTRACTION_VERSION in unity_collage/graph/extract.py",
    )
    # Made once for all backends.
    graphs = {name: DataflowGraph(make()) for name, make in _MADE.items()}
    return [
        Subject("schedules", SCHEDULE_VERSION, schedule_digests(), schedule),
        Subject("GPU schedules", GPU_SCHEDULE_VERSION, gpu_schedule_digests(), of_gpus),
        Subject("extraction", EXTRACTION_VERSION, extraction_digests(), extraction),
        Subject(
            "measuring", METHOD_VERSION, measuring_digests(), "METHOD_VERSION in unity_collage/cost/method.py"
        ),
        *(
            Subject(
                name,
                backend.version,
                backend_digests(backend, lower, graphs),
                f"version of the backend {name}",
            )
            for name, (backend, lower) in NATIVE.items()
        ),
    ]


def schedule_digests(names: Iterable[str] = tuple(SCHEDULED)) -> Digests:
    """Of the scheduled kernels of each graph that is named, for each target."""
    return {
        f"{name} for {mcpu}": _digest(_kernels(fused(SCHEDULED[name](), target)))
        for mcpu, target in TARGETS.items()
        for name in names
    }


def gpu_schedule_digests(names: Iterable[str] = tuple(SCHEDULED)) -> Digests:
    """Of the kernels of each graph that is named, bound to the threads of a GPU."""
    return {name: _digest(_kernels(fused(SCHEDULED[name](), GPU))) for name in names}


def extraction_digests() -> Digests:
    """Of what is extracted from each graph: every run of bindings, and the graph with its halves outlined."""
    return {name: _digest(_extracted(DataflowGraph(make()))) for name, make in EXTRACTED.items()}


def measuring_digests() -> Digests:
    """Of the inputs that a kernel of each graph is checked and timed on."""
    return {name: _digest(_inputs(DataflowGraph(make()))) for name, make in EXTRACTED.items()}


def _inputs(graph: DataflowGraph) -> Iterable[str]:
    for sub in _runs(graph):
        func = extract(sub, lift_constants=True)
        if any(shape_of(param) is None for param in func.params):
            continue
        for trial in trials(func):
            for array in trial.inputs:
                yield hashlib.sha256(array.tobytes()).hexdigest()


_MADE = {**{case.name: case.make for case in CASES}, **LOWERED}


def backend_digests(backend: Backend, lower: Lower, graphs: Mapping[str, DataflowGraph]) -> Digests:
    """Of what a library is told to compute for each graph of which its rule takes anything."""
    found = {name: _digest(_programs(graph, backend, lower)) for name, graph in graphs.items()}
    return {name: digest for name, digest in found.items() if digest != _digest(())}


def _programs(graph: DataflowGraph, backend: Backend, lower: Lower) -> Iterable[str]:
    for proposal in backend.rule(TARGETS["znver4"]).apply(graph):
        if isinstance(proposal, Found):
            parts = tuple(CompositePart(part.label, tuple(members(part.inside))) for part in proposal.nested)
            inside, hidden = tuple(members(proposal.inside)), tuple(members(proposal.hidden))
            candidate = Candidate(0, backend.name, proposal.rule, proposal.label, inside, hidden, parts)
            func = kernel_function(graph, candidate)
            programs, blob = lower(
                [external_function(func, backend.name, proposal.label, "kernel")], ["kernel"]
            )
            yield proposal.label
            yield programs
            yield hashlib.sha256(blob).hexdigest()


def _kernels(mod: IRModule) -> list[str]:
    """Each kernel without names and attributes, in an order that does not depend on names either."""
    kernels = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    return sorted(_hash(tirx.PrimFunc(func.params, func.body, func.ret_type)) for func in kernels)


def _extracted(graph: DataflowGraph) -> Iterable[str]:
    signatures = Signatures(graph)
    for sub in _runs(graph):
        yield signatures.text(sub)
        yield _hash(extract(sub))
        yield _hash(extract(sub, lift_constants=True))
        yield _hash(primitive_function(sub, threads=1))
        yield _hash(external_function(extract(sub), "backend", "label", "symbol"))
    yield _hash(_in_halves(graph))


def _runs(graph: DataflowGraph) -> list[SubGraph]:
    """All bindings of one block that follow each other; none of them waits for itself."""
    blocks = [node.block for node in graph.nodes]
    return [
        SubGraph(graph, index_set(range(first, last)))
        for first in range(len(blocks))
        for last in range(first + 1, len(blocks) + 1)
        if len(set(blocks[first:last])) == 1
    ]


def _in_halves(graph: DataflowGraph) -> IRModule:
    """A module whose ``main`` calls a function for each half of the graph."""
    middle, count = len(graph.nodes) // 2, len(graph.nodes)
    halves = [SubGraph(graph, index_set(half)) for half in (range(middle), range(middle, count)) if half]
    callees = {global_var(f"half{i}", extract(sub)): sub for i, sub in enumerate(halves)}
    groups = [Group(sub, gvar, tuple(outside_vars(sub))) for gvar, sub in callees.items()]
    functions: dict[Any, relax.Function] = {gvar: extract(sub) for gvar, sub in callees.items()}
    return IRModule({relax.GlobalVar("main"): outline(graph, groups), **functions})


def _hash(node: Any) -> str:
    """Of the structure: what variables are called makes no difference."""
    return f"{tvm_ffi.structural_hash(node, map_free_vars=True) % (1 << 64):016x}"


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


COMMAND = "python tests/unit/versions.py"


def why_outdated(subject: Subject, recorded: Mapping[str, Any]) -> str | None:
    """What to do where ``recorded`` is not what ``subject`` is now; None where it is."""
    reason = why_not_recorded(subject, recorded)
    if reason is None and recorded != entry(subject):
        reason = f"{subject.name} are recorded in {RECORDED.name} in another version: run `{COMMAND}`"
    return reason


def why_not_recorded(subject: Subject, recorded: Mapping[str, Any]) -> str | None:
    """Why the digests must not be recorded: some have changed, and the version has not."""
    before, version = recorded.get("digests", {}), recorded.get("version", 0)
    changed = [name for name, digest in subject.digests.items() if before.get(name, digest) != digest]
    if subject.version > version or (subject.version == version and not changed):
        return None
    return (
        f"{subject.name} of version {version} were recorded otherwise for: {', '.join(changed) or 'none'}. If that is "
        f"on purpose, set {subject.constant} to {version + 1}, so that costs measured before are not used, and "
        f"run `{COMMAND}`. If it is not, the last change is wrong."
    )


def entry(subject: Subject) -> dict[str, Any]:
    """What is recorded of a subject."""
    return {"version": subject.version, "digests": subject.digests}


def recorded() -> dict[str, Any]:
    """By subject, what was recorded last."""
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {}


def record() -> int:
    """Write the file; nothing where a version was not raised."""
    now, before = subjects(), recorded()
    reasons = [reason for s in now if (reason := why_not_recorded(s, before.get(s.name, {}))) is not None]
    if reasons:
        print("\n".join(reasons), file=sys.stderr)
        return 1
    RECORDED.write_text(json.dumps({s.name: entry(s) for s in now}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(record())
