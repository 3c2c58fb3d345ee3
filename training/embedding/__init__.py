"""Embed large collections of images, shard by shard."""
