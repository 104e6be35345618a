from collections.abc import Callable
from typing import Any, NamedTuple

from tvm_ffi import Device, Object

class Runner(Object): ...

class EvaluatorConfig(NamedTuple):
    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False

class LocalRunner(Runner):
    def __init__(
        self,
        timeout_sec: float = 30,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        alloc_repeat: int = 1,
        f_alloc_argument: str | Callable[[Device, Any, int], list[list[Any]]] | None = None,
        f_run_evaluator: str | Callable[..., list[float]] | None = None,
        f_cleanup: str | Callable[[], None] | None = None,
        initializer: Callable[[], None] | None = None,
    ) -> None: ...
