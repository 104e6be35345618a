"""What a kernel costs: measured once for each distinct one, and remembered."""
