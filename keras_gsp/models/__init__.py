"""Encoders, and the model that trains them."""
