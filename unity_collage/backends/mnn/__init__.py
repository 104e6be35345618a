"""MNN as a backend: whole models as its sessions."""
