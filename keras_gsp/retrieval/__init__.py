"""Indexes of embeddings, and the artefacts that serve them."""

from keras_gsp.retrieval.explanation import Explanation, explain
from keras_gsp.retrieval.index.certificate import certificate
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.milvus_index import MilvusIndex
from keras_gsp.retrieval.index.scann_index import ScannIndex
from keras_gsp.retrieval.index.search_index import Neighbors, SearchIndex
from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.retrieval.serving.export import export_encoder, export_retriever
from keras_gsp.retrieval.serving.portable import (
    PortableEncoder,
    export_litert,
    export_onnx,
)

__all__ = [
    "ExactIndex",
    "Explanation",
    "MatchThreshold",
    "MilvusIndex",
    "Neighbors",
    "PortableEncoder",
    "ScannIndex",
    "SearchIndex",
    "certificate",
    "explain",
    "export_encoder",
    "export_litert",
    "export_onnx",
    "export_retriever",
]
