"""Tuning: MetaSchedule finds better schedules for TVM's kernels than those without tuning."""

from ...schedule.tensor_intrinsics import register_cpu_intrinsics
from .meta_schedule import local_builder, local_runner, why_unavailable

__all__ = ["local_builder", "local_runner", "register_cpu_intrinsics", "why_unavailable"]
