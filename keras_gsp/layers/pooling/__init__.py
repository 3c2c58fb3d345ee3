"""Pooling layers: features of an image to one vector."""
