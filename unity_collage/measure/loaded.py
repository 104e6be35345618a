"""What the processes that measure kernels, or run programs, import besides TVM; this module imports nothing of it."""

LOADED = tuple(
    f"unity_collage.measure.{name}" for name in ("bench", "built_kernel", "checker", "computations", "inputs")
)
"""The template of these processes has it (:mod:`..processes.template`)."""
