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
    as_list,
    check_fits,
    checked_ids,
    checked_items,
)
from keras_gsp.retrieval.index.nearest import SPARE_CANDIDATES, ordered_exactly
from keras_gsp.retrieval.index.search_index import (
    Neighbors,
    checked_queries,
    one_id_each,
)
from keras_gsp.retrieval.index.where import Where, milvus_expression
from keras_gsp.retrieval.matching import MatchThreshold, checked_match
from keras_gsp.retrieval.space import SpaceFingerprint, checked_space

# Numbers in one message: Milvus refuses more than 64 MB.
BATCH_NUMBERS = 2**21
# Rows of one read in an exact search.
READ_ROWS = 4096
# A server's limits: bytes of a string, and neighbors of one query.
MAX_TEXT, MAX_NEIGHBORS = 65_535, 16_384
# The collection's properties that keep match threshold and space, as JSON.
MATCH, SPACE = "match_threshold", "space"
HNSW = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}}
FLAT: dict[str, Any] = {"index_type": "FLAT", "params": {}}
# Milvus's type of a column by the kind of a NumPy array, and what pads it.
TYPES = {"U": "VARCHAR", "i": "INT64", "f": "DOUBLE"}
PADDING = {"VARCHAR": "", "INT64": -1, "DOUBLE": -1.0}


class MilvusIndex:
    """Searches a gallery in Milvus, larger than memory or shared.

    Needs pymilvus (`pip install 'keras-gsp[milvus]'`). A path opens a database
    embedded in this process, which no other process can open at the same
    time; `http://host:19530` is a server or cluster. All calls are the same.

    Milvus finds most of the nearest items with an HNSW graph, once `build`
    was called; before, it compares with all items. The items found are
    ordered by exact distance, then by id.

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
        uri: str | os.PathLike,
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
        # Milvus's types of the columns by name.
        self._fields: dict[str, str] = {}
        self._size: int | None = None
        self._match: MatchThreshold | None = None
        self._space: SpaceFingerprint | None = None
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
        self._match = checked_match(match, self._space)
        self._keep(MATCH, match)

    @property
    def space(self) -> SpaceFingerprint | None:
        """Fingerprint of the encoder, kept in the collection, or `None`."""
        return self._space

    @space.setter
    def space(self, space: SpaceFingerprint | None) -> None:
        checked_match(self._match, checked_space(space))
        self._space = space
        self._keep(SPACE, space)

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
        rows, columns = checked_items(embeddings, labels, ids, attributes)
        if self._size is None:
            self._create(columns, rows.shape[1])
        check_fits(rows, columns, self._size, self._is_text)
        for name, values in columns.items():
            if (_type(values), self._fields[name]) == ("DOUBLE", "INT64"):
                raise TypeError(
                    f"`{name}` must be integers, as in the gallery. "
                    f"Received: {values.dtype}."
                )
        step = max(1, BATCH_NUMBERS // rows.shape[1])
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            lists = [column[some].tolist() for column in columns.values()]
            data = [
                dict(zip((*columns, "embedding"), row, strict=True))
                for row in zip(*lists, list(rows[some]), strict=True)
            ]
            self._call("upsert", data=data)

    def build(self, settings: Mapping[str, Any] | None = None) -> None:
        """Builds the graph over all items.

        Call it once the first items are in. A server adds later items to the
        graph; the embedded engine needs `build` again.

        Args:
            settings: Milvus's `index_type` and `params`. Default `None`:
                HNSW with 32 links for each item.
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

        The arguments are those of `SearchIndex.search`, with k at most
        16,367; `ef` is the width of the graph search, by default the larger
        of 64 and four times k.
        """
        queries = self._checked(queries, k)
        excluded = one_id_each(exclude_ids, len(queries))
        # A few more, so that ties at the end can be broken by id.
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
        ranked: list[list[tuple]] = []
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            found = self._call("search", data=list(queries[some]), **options)
            ranked += map(self._ranked, queries[some], found, excluded[some])
        return self._neighbors(k, ranked)

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items by reading all of them, in bounded memory.

        For `search_recall`: the whole gallery passes through this process.
        """
        queries = self._checked(queries, k)
        ranked: list[list[tuple]] = [[] for _ in queries]
        iterator = self._call(
            "query_iterator",
            batch_size=READ_ROWS,
            filter="",
            output_fields=["id", "label", "embedding"],
        )
        while rows := iterator.next():
            rows.sort(key=lambda row: row["id"])
            names = "embedding", "label", "id"
            block = ExactIndex(*([row[name] for row in rows] for name in names))
            near = block.search(queries, k)
            found = near.distances, near.ids, near.labels
            for query, row in enumerate(zip(*found, strict=True)):
                more = zip(*(part.tolist() for part in row), strict=True)
                ranked[query] = sorted([*ranked[query], *more])[:k]
        iterator.close()
        return self._neighbors(k, ranked)

    def delete(self, ids: Any) -> int:
        """Removes items and returns their number; unknown ids are ignored."""
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

    def ids(self) -> np.ndarray:
        """Returns the ids of all items, in rising order."""
        if self._size is None:
            return np.zeros(0, "int64")
        iterator = self._call(
            "query_iterator",
            batch_size=READ_ROWS,
            filter="",
            output_fields=["id"],
        )
        found = []
        while rows := iterator.next():
            found += [row["id"] for row in rows]
        iterator.close()
        return np.sort(np.array(found, None if found else "int64"))

    def items(
        self, ids: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Returns items as `upsert` takes them; see `SearchIndex.items`."""
        self._check_made()
        wanted = checked_ids(ids, len(ids)).tolist()
        rows: dict[Any, Any] = {}
        for start in range(0, len(wanted), READ_ROWS):
            found = self._call(
                "query",
                filter=milvus_expression(
                    {"id": wanted[start : start + READ_ROWS]}, self._is_text
                ),
                output_fields=[*self._fields, "embedding"],
                consistency_level="Strong",
            )
            rows |= {row["id"]: row for row in found}
        kept = [rows[one] for one in wanted if one in rows]
        columns = {n: np.array([r[n] for r in kept]) for n in self._fields}
        embeddings = np.array([row["embedding"] for row in kept], "float32")
        embeddings = embeddings.reshape(len(kept), self._size or 0)
        return embeddings, columns.pop("label"), columns.pop("id"), columns

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
        return {name: t == "VARCHAR" for name, t in self._fields.items()}

    def _call(self, name, **arguments):
        from pymilvus.exceptions import MilvusException

        try:
            return getattr(self._client, name)(self.collection, **arguments)
        except MilvusException as error:
            raise RuntimeError(
                f"Milvus at {self.uri!r} must answer {name!r}. "
                f"Received: {error}."
            ) from error

    def _ranked(self, query, hits, excluded):
        """Sorts a query's hits: tuples (exact distance, id, label)."""
        hits = [hit for hit in hits if hit["id"] != excluded]
        hits.sort(key=lambda hit: hit["id"])
        if not hits:
            return []
        rows = [hit["entity"]["embedding"] for hit in hits]
        distances, order = ordered_exactly(
            query[None],
            np.array([rows], "float32"),
            np.arange(len(hits))[None],
        )
        hits = [hits[place] for place in order[0]]
        labels = [hit["entity"]["label"] for hit in hits]
        ids = [hit["id"] for hit in hits]
        return list(zip(distances[0].tolist(), ids, labels, strict=True))

    def _neighbors(self, k, ranked):
        shown = min(k, len(self))
        kinds = [self._fields[name] for name in ("id", "label")]
        padding = [(np.inf, *(PADDING[kind] for kind in kinds))] * shown
        rows = [[*row, *padding][:shown] for row in ranked]
        distances, ids, labels = (
            np.array([[one[column] for one in row] for row in rows])
            for column in range(3)
        )
        match = self._match
        return Neighbors(
            ids=ids,
            labels=labels,
            distances=distances.astype("float32"),
            indices=np.full(ids.shape, -1),
            counts=np.isfinite(distances).sum(axis=1),
            is_match=None if match is None else match.is_match(distances),
        )

    def _keep(self, name, value):
        if self._size is not None:
            text = json.dumps(value and value.get_config())
            self._call("alter_collection_properties", properties={name: text})

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
        for field in description["fields"]:
            if field["name"] == "embedding":
                self._size = int(field["params"]["dim"])
            else:
                self._fields[field["name"]] = field["type"].name
        if self._size is None or not {"id", "label"} <= set(self._fields):
            raise ValueError(
                "`collection` must have the fields id, label and embedding. "
                f"Received: {self.collection!r} with {sorted(self._fields)}."
            )
        kept = description.get("properties", {})
        match, space = (json.loads(kept.get(n, "null")) for n in (MATCH, SPACE))
        if match:
            self._match = MatchThreshold.from_config(match)
        if space:
            self._space = SpaceFingerprint.from_config(space)
        if self._call("list_indexes"):
            self._call("load_collection")

    def _create(self, columns, size):
        from pymilvus import DataType

        schema = self._client.create_schema(
            auto_id=False, enable_dynamic_field=False
        )
        for name, values in columns.items():
            type_ = _type(values)
            options = {"max_length": MAX_TEXT} if type_ == "VARCHAR" else {}
            schema.add_field(
                name,
                getattr(DataType, type_),
                is_primary=name == "id",
                **options,
            )
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=size)
        self._call("create_collection", schema=schema)
        self._read_schema()
        self._keep(MATCH, self._match)
        self._keep(SPACE, self._space)
        # Searchable from the first item on. The embedded engine never builds a
        # graph of an empty collection.
        self.build(FLAT)


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


def _type(column):
    return TYPES.get(column.dtype.kind, "INT64")
