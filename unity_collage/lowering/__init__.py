"""From a plan to a program: outline, offload, fuse, build, and store as a library."""
