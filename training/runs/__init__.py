"""One training run: its files, callbacks and devices."""
