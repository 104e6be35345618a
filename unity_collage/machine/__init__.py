"""What this machine is: caches, measured peaks, the environment of a measuring process."""
