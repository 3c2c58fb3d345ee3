"""Encoders, and the model that trains them."""

from keras_gsp.models.encoder import build_encoder, embedding_of, histogram_of

__all__ = ["build_encoder", "embedding_of", "histogram_of"]
