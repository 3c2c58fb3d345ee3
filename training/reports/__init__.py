"""The parts of a report on runs: one page that a browser opens."""

from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
"""Templates, styles and scripts; those called `page` are shared."""
