"""One training run: what it writes, and how it is watched."""
