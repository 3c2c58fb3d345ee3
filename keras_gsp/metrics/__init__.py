"""Retrieval scores."""

from keras_gsp.metrics.retrieval import retrieval_scores

__all__ = ["retrieval_scores"]
