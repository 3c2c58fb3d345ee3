"""Work that NumPy does on the host: its threads, and sparse masks."""
