"""Other runtimes on one model, each in a process of its own: two thread pools in one process spin against each other."""
