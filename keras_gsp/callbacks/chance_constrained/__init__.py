"""Chance constrained programming: alternating proxies, anchored weights."""
