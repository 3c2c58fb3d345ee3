"""One training run: its files, callbacks, devices and export."""
