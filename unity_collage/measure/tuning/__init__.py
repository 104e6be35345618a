"""Tuning: MetaSchedule finds better schedules for TVM's kernels than those without tuning."""

from .meta_schedule import local_builder, local_runner, only_cpu_intrinsics, why_unavailable

__all__ = ["local_builder", "local_runner", "only_cpu_intrinsics", "why_unavailable"]
