"""Costs of kernels on an NVIDIA GPU: run, checked and timed on the device."""
