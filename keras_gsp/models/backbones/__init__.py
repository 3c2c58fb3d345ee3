"""Backbones that Keras does not carry."""
