"""Which compiles keep their program, and by which key it is found: the interface between ``compile`` and
:mod:`.kept`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import tvm

from .backends.foreign import bridge
from .backends.library_calls import calls_of_users
from .backends.registry import known
from .cost.model import CostModel
from .database.answers import Answers
from .database.costs import CostDatabase
from .defaults import Usual
from .frontend.models import Imported
from .frontend.onnx.reading import OnnxFile, files_of_weights
from .graph.calls import external_symbols
from .kept.asked import AskedOptions
from .kept.models import digest_of_file, digest_of_module, digest_of_protobuf
from .kept.place import KeptPrograms, place_for
from .measure.cuda.cost import CudaCost
from .measure.kernel_costs import KernelCosts
from .measure.measured import MeasuredCost
from .plan.memory import memory_goal
from .program import Program
from .runtime import remote_calls


@dataclass(frozen=True, slots=True)
class Keeping:
    """The programs that are kept for compiles of one kind; without a ``place`` there are none."""

    place: KeptPrograms | None
    database: CostDatabase | None = None
    is_new: bool = False
    """Whether the program is compiled even if one is kept; it is kept afterwards."""
    is_to_go_on: bool = False
    """Whether a program does not count if its compile ran out of time for measuring."""
    may_keep: bool = True
    """False where no time is allowed for measuring: such a program is not a better one than what is kept."""
    began: float = field(default_factory=time.time)
    """When the compile began to read the model, in seconds since the epoch."""

    def find(self, digest: str | None, model: Any = None) -> Program | None:
        """The kept program of the model with this ``digest``; ``model``: the path of its file, if it is one."""
        if self.place is None or self.is_new or digest is None:
            return None
        folder = Path(model).parent if isinstance(model, (str, Path)) else None
        return self.place.find(digest, self.database, folder, self.is_to_go_on)

    def noting(self) -> AbstractContextManager[Answers]:
        """Which questions the database is asked inside the ``with`` block."""
        return nullcontext(Answers()) if self.database is None else self.database.noting()

    def keep(
        self, digest: str | None, model: Any, given: Any, program: Program, answers: Answers, costs: CostModel
    ) -> None:
        """Keep the program of a model, given as ``model`` and read as ``given``.

        It is not kept if the model has changed since it was read, or if the user has stopped the measuring: the next
        compile goes on.
        """
        if self.place is None or digest is None or not self.may_keep:
            return
        if isinstance(costs, KernelCosts) and costs.was_stopped:
            return
        if self.database is not None and self.database.not_kept:
            return
        files: dict[str, str] = {}
        if isinstance(model, (str, Path)):
            names = files_of_weights(given.model) if isinstance(given, OnnxFile) else []
            paths = {name: Path(model).parent / name for name in names}
            found = {name: digest_of_file(path) for name, path in paths.items()}
            if None in found.values() or not digest.startswith(str(digest_of_given(model))):
                return
            if self._has_changed(paths.values()):
                return
            files = {name: each for name, each in found.items() if each is not None}
        self.place.keep(digest, program, answers, files, costs.is_budget_spent())

    def _has_changed(self, paths: Iterable[Path]) -> bool:
        """Whether one of these files was changed since the compile began: the program may have its earlier content."""
        try:
            return any(path.stat().st_ctime > self.began for path in paths)
        except OSError:  # it is gone
            return True


def keeping_for(costs: CostModel, asked: Any, options: Mapping[str, Any]) -> Keeping:
    """What is kept of a compile with these costs; ``asked``: its target, ``options``: all arguments of ``compile``."""
    measure, database = options["measure"], costs.database_and_lock()[0]
    if not _can_be_told(costs, options) or (measure and database is None):
        return Keeping(None)
    assert isinstance(costs, KernelCosts)
    where = options["database"] if database is None else database
    place = place_for(_asked(costs, asked, options), _file_of(where))
    is_new = options["recompile"] or costs.remeasure
    budget = costs.budget_seconds
    return Keeping(place, database, is_new, not isinstance(budget, Usual), budget != 0)


def digest_of_given(model: Any) -> str | None:
    """The digest of a model that need not be imported for it; None for others."""
    if isinstance(model, (str, Path)):
        return digest_of_file(model)
    return digest_of_protobuf(model) if isinstance(model, onnx.ModelProto) else None


def digest_of_imported(model: Any, source: Imported) -> str | None:
    """The digest of an imported model, together with that of ``model`` where not all of it is in the module.

    None for a model whose program is not kept.
    """
    if isinstance(model, OnnxFile) or remote_calls.functions_among(external_symbols(source.mod)):
        return None
    eager = () if source.eager is None else (source.eager.version,)
    inside = digest_of_module(source.mod, (*source.inputs, "->", *source.outputs, *eager))
    return None if inside is None else f"{digest_of_given(model)} {inside}"


def _can_be_told(costs: CostModel, options: Mapping[str, Any]) -> bool:
    """Whether everything is known that the program depends on.

    It is not known with rules, cost models, operators, library calls, passes or instruments of the user. Nor is it with
    a choice of devices, with tuned schedules, or if the cost model has results of an earlier compile. A locked compile
    depends on the database alone.
    """
    if type(costs) not in (MeasuredCost, CudaCost) or getattr(costs, "tuning_folder", None) is not None:
        return False
    assert isinstance(costs, KernelCosts)
    of_user = options["specs"] or options["custom_ops"] or options["devices"]
    if costs.locked or not costs.is_unused() or of_user or options["tune_trials"]:
        return False
    around = tvm.transform.PassContext.current()
    usual = tvm.transform.PassContext()
    is_usual = around.opt_level == usual.opt_level and not (
        around.config or around.instruments or around.required_pass or around.disabled_pass
    )
    return is_usual and not bridge.names(known()) and not calls_of_users()


def _asked(costs: KernelCosts, target: Any, options: Mapping[str, Any]) -> AskedOptions:
    limits = (costs.timeout_seconds, costs.memory_bytes)
    refine, backends = options["refine"], options["backends"]
    return AskedOptions(
        target="" if target is None else str(target),
        backends=[backends] if isinstance(backends, str) else backends,
        method=str(costs.method),
        packs=getattr(costs, "packs", True),
        unlimited=costs.budget_seconds is None,
        refine="" if refine is None else repr(refine),
        memory="" if (goal := memory_goal(options["memory_limit"], options["objective"])) is None else repr(goal),
        limits="" if limits == (KernelCosts.timeout_seconds, KernelCosts.memory_bytes) else str(limits),
        **{name: options[name] for name in ("shapes", "dims", "precision", "allow_winograd", "search_layouts",
                                            "measure", "explain", "custom_op_libraries", "eager")},
    )  # fmt: skip


def _file_of(database: CostDatabase | str | Path | None) -> str | Path | None:
    """The file of a database, or the URL of its server."""
    if not isinstance(database, CostDatabase):
        return database
    return database.name if database.path is None else database.path
