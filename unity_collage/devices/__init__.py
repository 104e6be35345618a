"""Places of values: which target, device and memory scope each has, solved by unification."""
