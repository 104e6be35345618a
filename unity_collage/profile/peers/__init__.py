"""Other runtimes to compare with, each in its own process: two thread pools in one would spin against each other."""
