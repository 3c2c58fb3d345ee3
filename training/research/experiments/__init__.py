"""The papers' controlled studies, one command each."""
