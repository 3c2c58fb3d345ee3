"""Indexes of embeddings, and the artefacts that serve them."""

from keras_gsp.retrieval.exact import ExactIndex
from keras_gsp.retrieval.explanation import Explanation, explain
from keras_gsp.retrieval.neighbors import Neighbors

__all__ = [
    "ExactIndex",
    "Explanation",
    "Neighbors",
    "explain",
]
