"""OpenBLAS inside of kernels of TVM."""
