from typing import Literal

from tvm.ir import IRModule
from tvm.target import Target
from tvm.tirx import PrimFunc

from .builder import Builder
from .database import Database
from .runner import Runner
from .search_strategy import SearchStrategy

def tune_tir(
    mod: IRModule | PrimFunc,
    target: str | Target,
    work_dir: str,
    max_trials_global: int,
    *,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: Builder | Literal["local"] = "local",
    runner: Runner | Literal["local", "rpc"] = "local",
    database: Database | Literal["json", "memory"] = "json",
    strategy: SearchStrategy | str = "evolutionary",
    num_tuning_cores: Literal["physical", "logical"] | int = "physical",
    seed: int | None = None,
) -> Database: ...
