"""Measured costs: kernels are built, checked and timed in a worker process."""
