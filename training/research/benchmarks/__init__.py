"""Ratios of time and memory, measured side by side."""
