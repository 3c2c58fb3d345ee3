"""Indexes of embeddings, and exports that serve them."""

from keras_gsp.retrieval.augmentation import NeighborAugmentation
from keras_gsp.retrieval.duplicates import duplicates
from keras_gsp.retrieval.explanation import explain
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.faiss_index import FaissIndex
from keras_gsp.retrieval.index.milvus_index import MilvusIndex
from keras_gsp.retrieval.index.scann_index import ScannIndex
from keras_gsp.retrieval.index.search_index import SearchIndex
from keras_gsp.retrieval.index.search_recall import search_recall
from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.retrieval.retriever import Retriever
from keras_gsp.retrieval.serving.export import export_encoder, export_retriever
from keras_gsp.retrieval.suspects import Suspects, suspects
from keras_gsp.retrieval.upgrade import Upgrade, upgrade
from keras_gsp.retrieval.verify_export import verify_export

__all__ = [
    "ExactIndex",
    "FaissIndex",
    "MatchThreshold",
    "MilvusIndex",
    "NeighborAugmentation",
    "Retriever",
    "ScannIndex",
    "SearchIndex",
    "Suspects",
    "Upgrade",
    "duplicates",
    "explain",
    "export_encoder",
    "export_retriever",
    "search_recall",
    "suspects",
    "upgrade",
    "verify_export",
]
