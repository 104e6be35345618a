"""TVM as a backend: its kernels stay in the IR."""
