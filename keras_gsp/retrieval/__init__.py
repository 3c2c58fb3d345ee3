"""Indexes of embeddings, and the artefacts that serve them."""

from keras_gsp.retrieval.exact import ExactIndex
from keras_gsp.retrieval.explanation import Explanation, explain
from keras_gsp.retrieval.export import export_encoder, export_retriever
from keras_gsp.retrieval.neighbors import Neighbors
from keras_gsp.retrieval.scann_index import ScannIndex

__all__ = [
    "ExactIndex",
    "Explanation",
    "Neighbors",
    "ScannIndex",
    "explain",
    "export_encoder",
    "export_retriever",
]
