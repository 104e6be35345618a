"""Kernels of our own: algorithms that no library offers, and how operators become programs of them."""

from .lowering import lower

__all__ = ["lower"]
