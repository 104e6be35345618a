"""The actions of ``unity-collage db`` on packs of costs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from ..cost.fingerprint import available, cost_fingerprint, of_family
from ..cost.method import Method
from ..database.costs import CostDatabase
from ..database.packs import CostPack, from_bytes, keep, kept, made, read, shipped, to_bytes
from ..errors import CollageError
from ..lowering.library_file import write
from ..machine import peaks
from ..measure.packed import stored_verdict
from ..report.cells import counted
from ..target import host_target
from .as_json import print_json
from .console import Output
from .files import STANDARD


def export_pack(database: CostDatabase, file: str, in_json: bool = False) -> None:
    """Write this machine's costs in ``database`` as a pack."""
    families = {text: of_family(text) for text in available(Method()).values()}
    pack = made(database, families, peaks.of_family(database))
    if not len(pack):
        raise CollageError(
            f"{database.name} has no undisturbed costs of this machine: db info --fingerprints shows those that it has"
        )
    data = to_bytes(pack)
    if file == STANDARD:
        sys.stdout.buffer.write(data)
        return
    write(Path(file), data)
    if in_json:
        print_json({"wrote": file, "costs": len(pack)})
        return
    size = f"{len(data) / 1000:.1f} KB"
    Output().say(f"wrote {file}: {len(pack)} costs and refusals, {size}")


def import_packs(database: str | None, files: Sequence[str], in_json: bool = False) -> None:
    """Add packs to a database. All files are read first, so that a broken one changes nothing."""
    packs = [_pack_in(name) for name in files]
    console = Output()
    with CostDatabase(database) as into:
        for pack in packs:
            keep(into, pack)
        if in_json:
            print_json({"into": into.name, "packs": {pack.name: len(pack) for pack in packs}})
            return
        for pack in packs:
            console.say(f"pack {pack.name}: {len(pack)} costs and refusals")
        console.say(f"into {into.name}")


def _pack_in(name: str) -> CostPack:
    if name == STANDARD:
        return from_bytes(sys.stdin.buffer.read(), "standard input")
    return read(Path(name))


def packs_told(database: CostDatabase) -> Iterator[str]:
    """A line for each pack that a compile with ``database`` finds: what is in it, and whether it is used here."""
    packs = {pack.name: pack for pack in chain(kept(database), shipped())}
    here = cost_fingerprint("tvm", host_target(), Method())
    for name, pack in packs.items():
        verdict = stored_verdict(database, name, here)
        if verdict is None:
            fits = of_family(here) in pack.entries
            used = "not tried here yet" if fits else "for other processors or versions"
        elif verdict.why_not is not None:
            used = f"not used here: {verdict.why_not}"
        else:
            used = f"used here: its costs times {verdict.ratio:.2f} are right within {verdict.deviation:.0%}"
        yield f"pack {name}, {counted(len(pack), 'cost')} and refusals: {used}"
