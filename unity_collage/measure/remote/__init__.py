"""Costs of other machines: kernels are made here, and checked and timed there, over TVM's RPC tracker."""

from .cost import RemoteCost
from .messages import why_unavailable

__all__ = ["RemoteCost", "why_unavailable"]
