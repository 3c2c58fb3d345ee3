"""Retrieval and verification scores, and comparisons of two encoders."""

from keras_gsp.metrics.paired_difference import paired_difference
from keras_gsp.metrics.reranking import k_reciprocal
from keras_gsp.metrics.retrieval import retrieval_scores
from keras_gsp.metrics.verification import verification_scores

__all__ = [
    "k_reciprocal",
    "paired_difference",
    "retrieval_scores",
    "verification_scores",
]
