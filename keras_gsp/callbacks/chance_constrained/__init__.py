"""Chance constrained programming: proxies re-chosen, weights anchored."""
