"""Our own kernels: algorithms that the libraries do not offer, and how operators become programs of them."""

from .lowering import lower

__all__ = ["lower"]
