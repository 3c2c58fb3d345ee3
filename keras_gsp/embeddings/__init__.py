"""Labeled batches and embeddings, shared by data, metrics and indexes."""
