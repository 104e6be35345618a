"""The kernels of a plan as a graph for the page: repeated blocks as one, in rows, with places for nodes and lines."""

from .picture import picture_of

__all__ = ["picture_of"]
