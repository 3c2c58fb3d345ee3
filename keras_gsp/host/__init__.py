"""Processors, and positions in sparse masks."""
