"""Backbones that `keras.applications` lacks."""
