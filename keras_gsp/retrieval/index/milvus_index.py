"""A gallery in Milvus: embedded in this process, or on a server."""

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.ops.extras import needed
from keras_gsp.ops.neighbors import SPARE_CANDIDATES
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.gallery import check_fits, checked_ids
from keras_gsp.retrieval.index.search_index import (
    KEPT,
    Items,
    SearchIndex,
    blocks_of,
    nearest_of,
)
from keras_gsp.retrieval.index.where import Where, as_list, milvus_expression

_milvus = partial(needed, user="MilvusIndex", install="'keras-gsp[milvus]'")
# Numbers in one message: Milvus refuses more than 64 MB.
BATCH_NUMBERS = 2**21
# Rows of one read.
READ_ROWS = 4096
# A server's limits: bytes of a string, and neighbors of one query.
MAX_TEXT, MAX_NEIGHBORS = 65_535, 16_384
HNSW = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}}
FLAT: dict[str, Any] = {"index_type": "FLAT", "params": {}}
# Milvus's type of a column by the kind of a NumPy array, and what pads it.
TYPES = {"U": "VARCHAR", "i": "INT64", "f": "DOUBLE"}
PADDING = {"VARCHAR": "", "INT64": -1, "DOUBLE": -1.0}


class MilvusIndex(SearchIndex):
    """Searches a gallery in Milvus, larger than memory or shared.

    Needs pymilvus (`pip install 'keras-gsp[milvus]'`). A path opens a database
    embedded in this process, which no other process can open at the same
    time; `http://host:19530` is a server or cluster.

    Milvus finds most of the nearest items with an HNSW graph once `build` was
    called; before, it compares with all items.

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
        self._read_schema()

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` before the first `upsert`."""
        return self._size

    def build(self, settings: Mapping[str, Any] | None = None) -> None:
        """Builds the graph over all items.

        Call it once the first items are in. A server adds later items to the
        graph; the embedded engine needs `build` again.

        Args:
            settings: Milvus's `index_type` and `params`. Default `None`:
                HNSW with 32 links for each item.
        """
        self._check_filled()
        self._build(settings or HNSW)

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
        return int(self._rows(where, ["count(*)"])[0]["count(*)"])

    def ids(self) -> np.ndarray:
        """Returns the ids of all items, in rising order."""
        found: list[Any] = []
        if self._size is not None:
            options = {"batch_size": READ_ROWS, "output_fields": ["id"]}
            iterator = self._call("query_iterator", filter="", **options)
            while rows := iterator.next():
                found += [row["id"] for row in rows]
            iterator.close()
        return np.sort(np.array(found, None if found else "int64"))

    def items(self, ids: Any) -> Items:
        """Returns items as `upsert` takes them; see `SearchIndex.items`."""
        self._check_filled()
        wanted = checked_ids(ids, len(ids)).tolist()
        rows: dict[Any, Any] = {}
        for some in blocks_of(wanted, READ_ROWS):
            found = self._rows({"id": some}, [*self._fields, "embedding"])
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

    def _put(self, rows, columns):
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

    def _found(self, queries, k, excluded, where, ef=None):
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
            "search_params": {"metric_type": "L2", "params": {"ef": width}},
            **self._selection(where, ["label", "embedding"]),
        }
        shown = min(k, len(self))
        nothing = [PADDING[self._fields[name]] for name in ("id", "label")]
        rows = []
        numbers = asked * (queries.shape[1] + len(self._fields))
        step = max(1, BATCH_NUMBERS // numbers)
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            found = self._call("search", data=list(queries[some]), **options)
            near = map(_ranked, queries[some], found, excluded[some])
            padding = [(np.inf, *nothing)] * shown
            rows += [[*row, *padding][:shown] for row in near]
        columns = zip(*(zip(*row, strict=True) for row in rows), strict=True)
        return self._neighbors(*map(np.array, columns))

    def _found_exactly(self, queries, k):
        """Reads all items in bounded memory."""
        near: list[Any] = []
        for some in blocks_of(self.ids(), READ_ROWS):
            embeddings, labels, ids, _ = self.items(some)
            found = ExactIndex(embeddings, labels, ids).search(queries, k)
            near.append((found.distances, found.ids, found.labels))
            near = [nearest_of(near, k)]
        return self._neighbors(*near[0])

    @property
    def _is_text(self):
        return {name: t == "VARCHAR" for name, t in self._fields.items()}

    def _selection(self, where, fields):
        return {
            "filter": milvus_expression(where, self._is_text),
            "output_fields": fields,
            "consistency_level": "Strong",
        }

    def _rows(self, where, fields):
        return self._call("query", **self._selection(where, fields))

    def _call(self, name, **arguments):
        from pymilvus.exceptions import MilvusException

        try:
            return getattr(self._client, name)(self.collection, **arguments)
        except MilvusException as error:
            raise RuntimeError(
                f"Milvus at {self.uri!r} must answer {name!r}. "
                f"Received: {error}."
            ) from error

    def _keep(self, name, value):
        if self._size is not None:
            kept = {KEPT[name][0]: json.dumps(value and value.get_config())}
            self._call("alter_collection_properties", properties=kept)

    def _check_filled(self):
        if self._size is None:
            self._read_schema()  # Another process may have made it.
        super()._check_filled()

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
        properties = description.get("properties", {})
        for name, (key, kind) in KEPT.items():
            if config := json.loads(properties.get(key, "null")):
                setattr(self, f"_{name}", kind.from_config(config))
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
            options["is_primary"] = name == "id"
            schema.add_field(name, getattr(DataType, type_), **options)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=size)
        self._call("create_collection", schema=schema)
        self._read_schema()
        for name in KEPT:
            self._keep(name, getattr(self, name))
        # Searchable from the first item on. The embedded engine never builds a
        # graph of an empty collection.
        self._build(FLAT)

    def _build(self, settings):
        self._call("flush")
        self._call("release_collection")
        for name in self._call("list_indexes"):
            self._call("drop_index", index_name=name)
        parameters = self._client.prepare_index_params()
        parameters.add_index("embedding", metric_type="L2", **settings)
        self._call("create_index", index_params=parameters)
        self._call("load_collection")


def _ranked(query, hits, excluded):
    """Sorts a query's hits: tuples (exact distance, id, label)."""
    hits = [hit for hit in hits if hit["id"] != excluded]
    rows = np.array([hit["entity"]["embedding"] for hit in hits], "float64")
    differences = rows.reshape(len(hits), len(query)) - query
    squares = np.einsum("hs,hs->h", differences, differences)
    return sorted(
        (distance, hit["id"], hit["entity"]["label"])
        for distance, hit in zip(np.sqrt(squares), hits, strict=True)
    )


def _connected(uri, token, timeout):
    pymilvus = _milvus("pymilvus")
    advice = "is it running? To start one: "
    if _is_path(uri):
        _milvus("milvus_lite")
        if "://" in uri or not uri.endswith(".db"):
            raise ValueError(
                "`uri` must be a path ending in .db, or begin with http:// or "
                f"https://. Received: uri={uri!r}."
            )
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        advice = "no other process may have it open; for several: "
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
