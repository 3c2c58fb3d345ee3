"""Indexes of embeddings, and exports that serve them."""

from keras_gsp.retrieval.explanation import (
    Explanation,
    explain,
    prototype_patches,
)
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.faiss_index import FaissIndex
from keras_gsp.retrieval.index.milvus_index import MilvusIndex
from keras_gsp.retrieval.index.neighbors import Neighbors
from keras_gsp.retrieval.index.scann_index import ScannIndex
from keras_gsp.retrieval.index.search_index import SearchIndex
from keras_gsp.retrieval.index.search_recall import search_recall
from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.retrieval.retriever import Retriever
from keras_gsp.retrieval.serving.export import export_encoder, export_retriever
from keras_gsp.retrieval.serving.portable import (
    PortableEncoder,
    export_litert,
    export_onnx,
)
from keras_gsp.retrieval.space import check_space, space_fingerprint
from keras_gsp.retrieval.suspects import Suspects, suspects
from keras_gsp.retrieval.upgrade import Upgrade, upgrade
from keras_gsp.retrieval.verification import verify
from keras_gsp.retrieval.verify_export import verify_export

__all__ = [
    "ExactIndex",
    "Explanation",
    "FaissIndex",
    "MatchThreshold",
    "MilvusIndex",
    "Neighbors",
    "PortableEncoder",
    "Retriever",
    "ScannIndex",
    "SearchIndex",
    "Suspects",
    "Upgrade",
    "check_space",
    "explain",
    "export_encoder",
    "export_litert",
    "export_onnx",
    "export_retriever",
    "prototype_patches",
    "search_recall",
    "space_fingerprint",
    "suspects",
    "upgrade",
    "verify",
    "verify_export",
]
