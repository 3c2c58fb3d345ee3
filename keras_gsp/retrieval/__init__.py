"""Indexes of embeddings, and the artefacts that serve them."""
