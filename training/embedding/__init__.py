"""Embeddings of a large collection, shard by shard."""
