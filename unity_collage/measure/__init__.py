"""What a kernel costs, found out by running it in a process of its own."""
