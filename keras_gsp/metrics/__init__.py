"""Retrieval scores, and what they say about two encoders."""

from keras_gsp.metrics.paired_difference import paired_difference
from keras_gsp.metrics.retrieval import retrieval_scores

__all__ = ["paired_difference", "retrieval_scores"]
