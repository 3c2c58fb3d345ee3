"""A gallery in Milvus: embedded in this process, or on a server."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.gallery import (
    RESERVED,
    as_list,
    checked_ids,
    checked_items,
)
from keras_gsp.retrieval.index.nearest import SPARE_CANDIDATES
from keras_gsp.retrieval.index.search_index import (
    Neighbors,
    checked_queries,
    one_id_each,
)
from keras_gsp.retrieval.index.where import Where, milvus_expression
from keras_gsp.retrieval.matching import MatchThreshold, checked_match

# Numbers in one message: Milvus refuses more than 64 MB.
BATCH_NUMBERS = 2**21
# Rows that are read at once where all are read.
READ_ROWS = 4096
# A server's limits: bytes of a string, and neighbors of one query.
MAX_TEXT, MAX_NEIGHBORS = 65_535, 16_384
# The collection's property that keeps the match threshold, as JSON.
MATCH = "match_threshold"
HNSW = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}}
FLAT: dict[str, Any] = {"index_type": "FLAT", "params": {}}
PADDING: dict[str, tuple[Any, Any]] = {
    "text": ("", object),
    "integer": (-1, "int64"),
    "float": (-1, "float64"),
    "distance": (np.inf, "float32"),
}
TYPES = {"text": "VARCHAR", "integer": "INT64", "float": "DOUBLE"}


class MilvusIndex:
    """Searches a gallery in Milvus, larger than memory or shared.

    Needs pymilvus (`pip install 'keras-gsp[milvus]'`). A path is a database
    in that folder, inside this process and for it alone; `http://host:19530`
    is a server or cluster. All calls are the same.

    Milvus finds most of the nearest items with an HNSW graph, which `build`
    makes after items were added; before, it compares with all. The items
    found are ordered by exact distance, then by id.

    Args:
        uri: path ending in `.db`, or `http://...` or `https://...`.
        collection: name of the gallery; letters, digits and underscores. The
            first `upsert` makes it if it does not exist.
        token: `user:password` or the token of a server. Default `None`.
        timeout: seconds to wait for a server's answer. Default 30.

    Raises:
        ImportError: pymilvus, or for a path milvus-lite, is not installed.
        RuntimeError: the server does not answer, or another process has the
            database open.
        ValueError: an address of another kind; a collection without the
            fields of this class.

    Example:

    ```python
    import tempfile
    import numpy as np
    import keras_gsp as gsp

    with tempfile.TemporaryDirectory() as folder:
        try:
            index = gsp.retrieval.MilvusIndex(f"{folder}/gallery.db", "things")
        except ImportError:
            pass
        else:
            index.upsert(np.eye(3), ["cat", "dog", "cow"], ["a", "b", "c"])
            index.build()
            found = index.search(np.eye(3)[:1], k=2, where={"label": "dog"})
            assert found.ids[0, 0] == "b"
            index.close()
    ```
    """

    kind = "milvus"

    def __init__(
        self,
        uri: Any,
        collection: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        if not collection.isidentifier() or not collection.isascii():
            raise ValueError(
                "`collection` must be letters, digits and underscores. "
                f"Received: collection={collection!r}."
            )
        self.uri, self.collection = os.fspath(uri), collection
        self._client = _connected(self.uri, token, timeout)
        self._fields: dict[str, str] = {}
        self._size: int | None = None
        self._match: MatchThreshold | None = None
        self._read_schema()

    def __len__(self) -> int:
        return self.count()

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` before the first `upsert`."""
        return self._size

    @property
    def match(self) -> MatchThreshold | None:
        """Largest distance of a match, kept in the collection, or `None`."""
        return self._match

    @match.setter
    def match(self, match: MatchThreshold | None) -> None:
        self._match = checked_match(match)
        if self._size is not None:
            self._keep_match()

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items and replaces those with the same ids.

        The first call makes the collection and fixes the size, the kinds of
        labels and ids, and the attributes. Embeddings are kept as float32.
        An interrupted call may be repeated unchanged. See
        `SearchIndex.upsert` for the arguments and errors.
        """
        items = checked_items(embeddings, labels, ids, attributes)
        columns = {
            "id": items["ids"],
            "label": items["labels"],
            **items["attributes"],
        }
        rows = items["embeddings"]
        if self._size is None:
            self._create(columns, rows.shape[1])
        self._check_fits(columns, rows.shape[1])
        step = max(1, BATCH_NUMBERS // rows.shape[1])
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            values = [column[some].tolist() for column in columns.values()]
            data = [
                dict(zip((*columns, "embedding"), row, strict=True))
                for row in zip(*values, list(rows[some]), strict=True)
            ]
            self._call("upsert", data=data)

    def build(self, settings: Mapping[str, Any] | None = None) -> None:
        """Builds the graph over all items.

        Call it once the first items are in. A server adds later items to the
        graph; the embedded engine needs `build` again.

        Args:
            settings: Milvus's `index_type` and `params`. Default `None`:
                HNSW with 32 links.
        """
        self._check_made()
        self._call("flush")
        self._call("release_collection")
        for name in self._call("list_indexes"):
            self._call("drop_index", index_name=name)
        parameters = self._client.prepare_index_params()
        parameters.add_index(
            "embedding", metric_type="L2", **(settings or HNSW)
        )
        self._call("create_index", index_params=parameters)
        self._call("load_collection")

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
        ef: int | None = None,
    ) -> Neighbors:
        """Finds k near items of each query.

        Args:
            queries: as for `SearchIndex.search`.
            k: as there, at most 16,367.
            exclude_ids: as there.
            where: as there; Milvus filters while it searches.
            ef: width of the graph search. Default `None`: the larger of 64
                and four times k.
        """
        queries = self._checked(queries, k)
        excluded = one_id_each(exclude_ids, len(queries))
        # Ties at the end are broken by id among a few more.
        asked = k + 1 + SPARE_CANDIDATES
        if asked > MAX_NEIGHBORS:
            raise ValueError(
                f"`k` must be at most {MAX_NEIGHBORS - 1 - SPARE_CANDIDATES}, "
                f"Milvus's limit. Received: k={k}."
            )
        width = max(ef or max(64, 4 * k), asked)
        options = {
            "anns_field": "embedding",
            "limit": asked,
            "filter": milvus_expression(where, self._is_text),
            "output_fields": ["label", "embedding"],
            "search_params": {"metric_type": "L2", "params": {"ef": width}},
            "consistency_level": "Strong",
        }
        numbers = asked * (queries.shape[1] + len(self._fields))
        step = max(1, BATCH_NUMBERS // numbers)
        found: list[list[tuple]] = []
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            answers = self._call("search", data=list(queries[some]), **options)
            for query, hits, own in zip(
                queries[some], answers, excluded[some], strict=True
            ):
                hits = [hit for hit in hits if hit["id"] != own]
                rows = [{"id": hit["id"], **hit["entity"]} for hit in hits]
                found.append(_nearest(query[None], rows, k)[0])
        return self._neighbors(found, k)

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items by reading all of them, in bounded memory.

        For `search_recall`: the whole gallery passes through this process.
        """
        queries = self._checked(queries, k)
        found: list[list[tuple]] = [[] for _ in queries]
        iterator = self._call(
            "query_iterator",
            batch_size=READ_ROWS,
            filter="",
            output_fields=["id", "label", "embedding"],
        )
        while rows := iterator.next():
            # Equally near items are in the order of their ids.
            for best, near in zip(
                found, _nearest(queries, rows, k), strict=True
            ):
                best[:] = sorted(best + near, key=lambda hit: hit[:2])[:k]
        iterator.close()
        return self._neighbors(found, k)

    def delete(self, ids: Any) -> int:
        """Removes items and returns their number.

        Args:
            ids: one id or several; unknown ids are ignored.
        """
        ids = as_list(ids)
        if self._size is None or not ids:
            return 0
        ids = checked_ids(ids, len(ids)).tolist()
        num_known = self.count({"id": ids})
        self._call("delete", ids=ids)
        return num_known

    def count(self, where: Where | None = None) -> int:
        """Returns the number of items that pass a filter."""
        if self._size is None:
            return 0
        rows = self._call(
            "query",
            filter=milvus_expression(where, self._is_text),
            output_fields=["count(*)"],
            consistency_level="Strong",
        )
        return int(rows[0]["count(*)"])

    def close(self) -> None:
        """Closes the database, so that another process can open it."""
        self._client.close()
        if _is_path(self.uri):
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self.uri)

    def _checked(self, queries, k):
        check_count(k=k)
        self._check_made()
        return checked_queries(queries, self._size)

    @property
    def _is_text(self):
        return {name: kind == "text" for name, kind in self._fields.items()}

    def _call(self, name, **arguments):
        from pymilvus.exceptions import MilvusException

        try:
            return getattr(self._client, name)(self.collection, **arguments)
        except MilvusException as error:
            raise RuntimeError(
                f"Milvus at {self.uri!r} must answer {name!r}. "
                f"Received: {error}."
            ) from error

    def _neighbors(self, found, k):
        """`Neighbors` of lists of (distance, id, label)."""
        shape = len(found), min(k, len(self))

        def column(place, kind):
            empty, dtype = PADDING[kind]
            values = np.full(shape, empty, dtype)
            for row, hits in enumerate(found):
                values[row, : len(hits)] = [hit[place] for hit in hits]
            return values.astype("U") if dtype is object else values

        distances, match = column(0, "distance"), self._match
        return Neighbors(
            ids=column(1, self._fields["id"]),
            labels=column(2, self._fields["label"]),
            distances=distances,
            indices=np.full(shape, -1),
            counts=np.array([len(hits) for hits in found]),
            is_match=None if match is None else match.is_match(distances),
        )

    def _keep_match(self):
        config = self._match and self._match.get_config()
        self._call(
            "alter_collection_properties",
            properties={MATCH: json.dumps(config)},
        )

    def _check_made(self):
        if self._size is None:
            self._read_schema()
        if self._size is None:
            raise RuntimeError(
                "The index must hold at least one item. Received: no "
                f"collection {self.collection!r} in {self.uri!r}; call "
                "`upsert` first."
            )

    def _read_schema(self):
        if not self._call("has_collection"):
            return
        description = self._call("describe_collection")
        kinds = {type_: kind for kind, type_ in TYPES.items()}
        for field in description["fields"]:
            if field["name"] == "embedding":
                self._size = int(field["params"]["dim"])
            else:
                kind = kinds.get(field["type"].name, "float")
                self._fields[field["name"]] = kind
        if self._size is None or not {"id", "label"} <= set(self._fields):
            raise ValueError(
                "`collection` must have the fields id, label and embedding. "
                f"Received: {self.collection!r} with {sorted(self._fields)}."
            )
        config = json.loads(description.get("properties", {}).get(MATCH, "0"))
        if config:
            self._match = MatchThreshold.from_config(config)
        if self._call("list_indexes"):
            self._call("load_collection")

    def _create(self, columns, size):
        from pymilvus import DataType

        schema = self._client.create_schema(
            auto_id=False, enable_dynamic_field=False
        )
        for name, values in columns.items():
            kind = _kind(values)
            options = {"max_length": MAX_TEXT} if kind == "text" else {}
            type_ = getattr(DataType, TYPES[kind])
            schema.add_field(name, type_, is_primary=name == "id", **options)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=size)
        self._call("create_collection", schema=schema)
        self._read_schema()
        if self._match is not None:
            self._keep_match()
        # Searchable from the first item on. A graph over an empty collection
        # is never built by the embedded engine.
        self.build(FLAT)

    def _check_fits(self, columns, size):
        if size != self._size:
            raise ValueError(
                "`embeddings` must have the size of the gallery. Received: "
                f"{size}, the gallery has {self._size}."
            )
        if set(columns) != set(self._fields):
            raise ValueError(
                "`attributes` must be those of the gallery, "
                f"{sorted(set(self._fields) - RESERVED)}. Received: "
                f"{sorted(set(columns) - RESERVED)}."
            )
        for name, kind in self._fields.items():
            new = _kind(columns[name])
            if new != kind and (new, kind) != ("integer", "float"):
                raise TypeError(
                    f"`{name}` must be of the kind the gallery already has. "
                    f"Received: {new}, the gallery has {kind}."
                )


def _nearest(queries, rows, k):
    """The k nearest of some rows for each query: (distance, id, label)."""
    # Equal distances are in the gallery's order: here that of the ids.
    rows = sorted(rows, key=lambda row: row["id"])
    if not rows:
        return [[] for _ in queries]
    vectors = np.array([row["embedding"] for row in rows], "float32")
    found = ExactIndex(vectors).search(queries, k)
    return [
        [
            (distance, rows[index]["id"], rows[index]["label"])
            for distance, index in zip(near.tolist(), order, strict=True)
        ]
        for near, order in zip(found.distances, found.indices, strict=True)
    ]


def _connected(uri, token, timeout):
    try:
        import pymilvus

        if _is_path(uri):
            import milvus_lite  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "`MilvusIndex` needs pymilvus, and milvus-lite for a path: "
            f"pip install 'keras-gsp[milvus]'. Received: {error}."
        ) from error
    advice = "is it running? To start one: "
    if _is_path(uri):
        if "://" in uri or not uri.endswith(".db"):
            raise ValueError(
                "`uri` must be a path ending in .db, or begin with http:// or "
                f"https://. Received: uri={uri!r}."
            )
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        advice = (
            "the folder must be writable and no other process may have it "
            "open; for several, start a server: "
        )
    try:
        return pymilvus.MilvusClient(uri, token=token or "", timeout=timeout)
    except pymilvus.exceptions.MilvusException as error:
        raise RuntimeError(
            f"Milvus must answer at {uri!r}; {advice}"
            "docker run -p 127.0.0.1:19530:19530 milvusdb/milvus milvus run "
            f"standalone. Received: {error}."
        ) from error


def _is_path(uri):
    return not uri.startswith(("http://", "https://"))


def _kind(column):
    kinds = {"U": "text", "f": "float"}
    return kinds.get(column.dtype.kind, "integer")
