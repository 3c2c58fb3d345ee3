"""Galleries and the indexes that search them."""
