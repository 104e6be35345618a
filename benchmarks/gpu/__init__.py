"""Whole networks on one NVIDIA GPU: ours against torch.compile and against eager torch in a CUDA graph."""
