"""PyTorch as a backend: calls of ATen for single operators of Relax."""
