"""From a plan to a program: outline, build, store as a library."""
