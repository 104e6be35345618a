"""The state of an installation as text for a terminal or a bug report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ..inspection.doctor import Diagnosis
from ..inspection.stores import DatabaseState, KeptFiles
from ..inspection.system import Gpu, Pools, Processor, Toolchain
from .cells import counted

Row = tuple[str, str]


def diagnosis_text(found: Diagnosis) -> RenderableType:
    """A paragraph for each part, and a line for each fact in it; for a missing part the line says how to get it."""
    parts = (
        ("versions", found.versions.items()),
        ("processor", _processor(found.processor)),
        ("thread pools", _pools(found.pools)),
        ("libraries", ((each.name, _library(each.version, each.remedy)) for each in found.libraries)),
        ("backends", ((each.name, each.state) for each in found.backends)),
        ("C++ compiler", _toolchain(found.toolchain)),
        ("GPU", _gpu(found.gpu)),
        ("database of costs", _database(found.database)),
        ("kept beside it", _kept(found.kept)),
        ("environment variables", found.settings.items() or [("", "none that change what is compiled")]),
        ("a compile", _trial(found)),
    )
    shown: list[RenderableType] = []
    for title, rows in parts:
        shown += [f"[bold]{title}[/bold]", _table(rows)]
    return Group(*shown)


def _table(rows: Iterable[Row]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=18, no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(f"  {escape(name)}", escape(text))
    return table


def _processor(found: Processor) -> Iterator[Row]:
    yield "name", found.name
    yield "instruction sets", " ".join(found.instruction_sets)
    quota = "no quota" if found.quota is None else f"a quota of {found.quota:g} from control groups"
    yield "cores", f"{found.cores}, {found.usable_cores} usable, {quota}"
    if found.threads is not None:
        yield "threads", f"{found.threads} by default"
    if found.l2_bytes is not None and found.l3_bytes is not None:
        yield (
            "caches",
            f"L2 {found.l2_bytes >> 10} KiB of all threads together, L3 {found.l3_bytes >> 10} KiB",
        )
    yield "memory", f"{found.memory_bytes / 2**30:.1f} GiB"


def _pools(found: Pools) -> Iterator[Row]:
    yield "ours", "one, for TVM's loops and the libraries"
    yield "OpenMP", ", ".join(found.openmp) or "no runtime is loaded"
    yield "conflicts", found.conflict or "none"


def _library(version: str | None, remedy: str) -> str:
    return version or f"not installed; {remedy}"


def _toolchain(found: Toolchain) -> Iterator[Row]:
    yield "compiler", found.compiler or f"not found; {found.without}"
    yield "linker", found.linker or "not found; it comes with the compiler"


def _gpu(found: Gpu) -> Iterator[Row]:
    yield "device", found.name or f"none: {found.why_not}"
    if found.driver:
        yield "driver", found.driver


def _database(found: DatabaseState) -> Iterator[Row]:
    yield "place", found.place
    if not found.exists and not found.problem:
        yield "content", "none yet: the first compile makes it"
    if found.costs is not None and found.doubtful is not None:
        again = f", {found.doubtful} of them doubtful: the next compile measures these again"
        yield "content", f"{counted(found.costs, 'cost')}{again if found.doubtful else ', none doubtful'}"
    if found.nbytes is not None:
        yield "size", _megabytes(found.nbytes)
    if found.free_bytes is not None:
        yield "free on its disk", _megabytes(found.free_bytes)
    if found.is_writable is not None:
        yield "writable", "yes" if found.is_writable else "no"
    if found.problem:
        yield "problem", found.problem


def _kept(found: KeptFiles) -> Iterator[Row]:
    yield "folder", found.folder or "nothing is kept: the costs are on a server"
    yield "programs", f"{found.programs}, {_megabytes(found.program_bytes)}"
    yield "object code", f"{counted(found.functions, 'function')}, {_megabytes(found.function_bytes)}"


def _trial(found: Diagnosis) -> Iterator[Row]:
    if found.trial is not None and found.trial.problem is None:
        text = f"a small model was compiled, saved, and run in a process of its own, in {found.trial.seconds:.1f} s"
        yield "works", text
    if found.why_not is not None:
        yield "cannot work", found.why_not


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB" if nbytes < 1e9 else f"{nbytes / 1e9:.1f} GB"
