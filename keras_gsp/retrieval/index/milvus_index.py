"""A gallery in Milvus: embedded in this process, or on a server."""

import json
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp._optional import needed
from keras_gsp.ops.neighbors import SPARE_CANDIDATES
from keras_gsp.retrieval.augmentation import NeighborAugmentation
from keras_gsp.retrieval.index.augmented_search import AugmentedSearch
from keras_gsp.retrieval.index.columns import (
    blocks_of,
    fitted,
    ids_of_kind,
)
from keras_gsp.retrieval.index.neighbors import padding_of
from keras_gsp.retrieval.index.one_writer import OneWriter
from keras_gsp.retrieval.index.search_index import KEPT, Items, SearchIndex
from keras_gsp.retrieval.index.search_recall import (
    OWN_QUERIES,
    warn_of_low_recall,
)
from keras_gsp.retrieval.index.where import Where, as_list, milvus_expression

_milvus = partial(needed, user="MilvusIndex", install="'keras-gsp[milvus]'")
# Numbers in one message: Milvus refuses more than 64 MB.
BATCH_NUMBERS = 2**21
# Rows of one read.
READ_ROWS = 4096
# A server's limits: bytes of a string, and neighbors of one query.
MAX_TEXT, MAX_NEIGHBORS = 65_535, 16_384
# Seconds to wait for an answer.
TIMEOUT = 30.0
# Width of a graph search, at least.
LEAST_WIDTH = 64
HNSW = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}}
FLAT: dict[str, Any] = {"index_type": "FLAT", "params": {}}
# Milvus's type of a column by the kind of a NumPy array, and back.
TYPES = {"O": "VARCHAR", "i": "INT64", "f": "DOUBLE"}
DTYPES = {"VARCHAR": "U", "INT64": "int64", "DOUBLE": "float64"}
# What a collection keeps beside its items.
PROPERTIES = KEPT | {"augmentation": ("augmentation", NeighborAugmentation)}


class MilvusIndex(SearchIndex):
    """Searches a gallery in Milvus, larger than memory or shared.

    Needs pymilvus (`pip install 'keras-gsp[milvus]'`). A path opens a database
    embedded in this process, which no other process can open until it ends;
    `http://host:19530` is a server or cluster.

    Milvus compares with all items until `build` was called.

    Args:
        uri: path ending in `.db`, or `http://...` or `https://...`.
        collection: name of the gallery; letters, digits and underscores. The
            first `upsert` makes it if it does not exist.
        token: `user:password` or the token of a server.
        augmentation: as for `ExactIndex`; its rows are in collections beside
            this one. `None`: that of an existing collection.

    Raises:
        ImportError: pymilvus, or for a path milvus-lite, is not installed.
        RuntimeError: the server does not answer, or another process has the
            database open.
        ValueError: an address of another kind; a collection without the
            fields of this class.

    Example:

    ```python
    import tempfile

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
    max_neighbors = MAX_NEIGHBORS - 1 - SPARE_CANDIDATES

    def __init__(
        self,
        uri: str | os.PathLike,
        collection: str,
        *,
        token: str | None = None,
        augmentation: NeighborAugmentation | None = None,
    ) -> None:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", str(collection)):
            raise ValueError(
                "`collection` must be letters, digits and underscores. "
                f"Received: collection={collection!r}."
            )
        self.uri, self.collection = os.fspath(uri), collection
        if "://" not in self.uri:  # the working directory may change
            self.uri = os.path.realpath(self.uri)
        self._client: Any = _connected(self.uri, token)
        self._threads = OneWriter()
        # Size of the embeddings, and Milvus's types of the columns by name.
        self._schema: tuple[int | None, dict[str, str]] = None, {}
        self._token = token
        self._read_schema()
        if augmentation not in (None, self.augmentation):
            self.augmentation = augmentation

    @property
    def embedding_size(self) -> int | None:
        return self._schema[0]

    def build(self, settings: Mapping[str, Any] | None = None) -> None:
        """Builds Milvus's index over all items, and tries it on its own.

        Call it once the first items are in. A server adds later items to the
        graph; the embedded engine needs `build` again. Searches of other
        threads wait. A recall below .98, of the 10 nearest of 100 items, is
        warned of.

        `settings` are Milvus's `index_type` and `params`. `None`: HNSW with 32
        links for each item on a server, and FLAT (compares with all) in the
        embedded engine, whose graph misses items beside many equal ones.
        """
        self._check_filled()
        settings = settings or (FLAT if _is_path(self.uri) else HNSW)
        with self._threads.changing:
            with self._threads.alone():
                self._build(FLAT)
            if settings["index_type"] == "FLAT":
                return
            ids = self.ids()
            own = self.items(ids[:: -(-len(ids) // OWN_QUERIES)])[0]
            exact = self.search(own, 10)
            with self._threads.alone():
                self._build(settings)
            near = self.search(own, 10)
            warn_of_low_recall(near, exact, "Take FLAT, or a larger `ef`")

    def delete(self, ids: Any) -> int:
        ids = as_list(ids)
        if self.embedding_size is None or not ids:
            return 0
        ids = ids_of_kind(ids, self._dtypes["id"])
        num_known = 0
        with self._threads.changing, self._changing(ids):
            for block in blocks_of(ids.tolist(), READ_ROWS):
                num_known += self.count({"id": block})
                expression = milvus_expression({"id": block}, self._dtypes)
                self._call("delete", filter=expression)
        return num_known

    def count(self, where: Where | None = None) -> int:
        if self.embedding_size is None:
            return 0
        return int(self._rows(where, ["count(*)"])[0]["count(*)"])

    def ids(self) -> np.ndarray:
        """Returns the ids of all items, in rising order."""
        ids: list[Any] = []
        if self.embedding_size is None:
            return np.array(ids, "int64")
        options = {"batch_size": READ_ROWS, "output_fields": ["id"]}
        with self._threads.reading():
            iterator = self._call("query_iterator", filter="", **options)
            while rows := iterator.next():
                ids += [row["id"] for row in rows]
            iterator.close()
        return np.sort(np.array(ids, None if ids else "int64"))

    def items(self, ids: Any) -> Items:
        self._check_filled()
        wanted = ids_of_kind(as_list(ids), self._dtypes["id"]).tolist()
        fields = [*self._dtypes, "embedding"]
        rows: dict[Any, Any] = {}
        size = self.embedding_size or 1
        for block in blocks_of(wanted, min(READ_ROWS, BATCH_NUMBERS // size)):
            rows |= {x["id"]: x for x in self._rows({"id": block}, fields)}
        items = [rows[name] for name in wanted if name in rows]
        columns = {
            name: np.array([row[name] for row in items], dtype)
            for name, dtype in self._dtypes.items()
        }
        embeddings = np.array([row["embedding"] for row in items], "float32")
        embeddings = embeddings.reshape(len(items), size)
        return embeddings, columns.pop("label"), columns.pop("id"), columns

    def close(self) -> None:
        """Closes the index; afterwards it answers no more."""
        for index in [] if self._augmented is None else self._augmented.rounds:
            index.close()
        if self._client is not None:
            self._client.close()
        self._client = None

    @property
    def _dtypes(self):
        return {k: np.dtype(DTYPES[x]) for k, x in self._schema[1].items()}

    def _put(self, rows, columns):
        with self._threads.changing:
            if self.embedding_size is None:
                self._read_schema()  # Another process may have made it.
            if self.embedding_size is not None:
                self._send(rows, columns)
                return
            try:
                self._create(columns, rows.shape[1])
                self._send(rows, columns)
            except RuntimeError:
                self._drop()  # A refused call changes nothing.
                raise

    def _send(self, rows, columns):
        columns = fitted(rows, columns, self.embedding_size, self._dtypes)
        size = rows.shape[1]
        for values in columns.values():
            # A letter has up to four bytes, as many as a number.
            size += max(map(len, values)) if values.dtype == object else 2
        names = *columns, "embedding"
        with self._changing(columns["id"]):
            for some in blocks_of(range(len(rows)), BATCH_NUMBERS // size):
                lists = [column[some].tolist() for column in columns.values()]
                items = zip(*lists, list(rows[some]), strict=True)
                data = [dict(zip(names, item, strict=True)) for item in items]
                self._call("upsert", data=data)

    def _found(self, queries, k, excluded, where, column=None):
        # A few more, so that ties at the end can be broken by id.
        asked, shown = k + 1 + SPARE_CANDIDATES, min(k, len(self))
        names = list(dict.fromkeys(["id", "label", column or "label"]))
        width = {"ef": max(LEAST_WIDTH, 4 * k, asked)}
        options = {
            "anns_field": "embedding",
            "limit": asked,
            "search_params": {"metric_type": "L2", "params": width},
            **self._selection(where, [*names[1:], "embedding"]),
        }
        dtypes = [self._dtypes[name] for name in names]
        missing = [padding_of(np.zeros(0, x)).item() for x in dtypes]
        padding = [(np.inf, *missing)] * shown
        rows: list[Any] = []
        numbers = asked * (queries.shape[1] + len(names))
        for block in blocks_of(range(len(queries)), BATCH_NUMBERS // numbers):
            some = queries[block.start : block.stop]
            with self._threads.reading():
                answers = self._call("search", data=list(some), **options)
            for query, hits, row in zip(some, answers, block, strict=True):
                near = _ranked(query, hits, excluded[row], names)
                rows += (near + padding)[:shown]
        distances, *columns = (
            np.array(values).reshape(len(queries), shown)
            for values in zip(*rows, strict=True)
        )
        found = dict(zip(names, columns, strict=True))
        groups = found[column] if column else None
        return self._neighbors(
            distances, found["id"], found["label"], groups=groups
        )

    def _selection(self, where, fields):
        return {
            "filter": milvus_expression(where, self._dtypes),
            "output_fields": fields,
            "consistency_level": "Strong",
        }

    def _rows(self, where, fields):
        with self._threads.reading():
            return self._call("query", **self._selection(where, fields))

    def _call(self, name, **arguments):
        from pymilvus.exceptions import MilvusException

        is_lost = _is_path(self.uri) and not os.path.isdir(self.uri)
        if self._client is None or is_lost:
            raise RuntimeError(
                "The index must be open, and its database be there. Received: "
                f"{self.uri!r}, which was closed or removed; make another "
                "`MilvusIndex`, for a removed database at another path."
            )
        try:
            return getattr(self._client, name)(self.collection, **arguments)
        except MilvusException as error:
            raise RuntimeError(
                f"Milvus at {self.uri!r} must answer {name!r}. "
                f"Received: {error}."
            ) from error

    def _keep(self, name, value):
        if self.embedding_size is not None:
            text = json.dumps(value and value.get_config())
            properties = {PROPERTIES[name][0]: text}
            self._call("alter_collection_properties", properties=properties)

    def _check_filled(self):
        if self.embedding_size is None:
            self._read_schema()  # Another process may have made it.
        super()._check_filled()

    def _read_schema(self):
        if not self._call("has_collection"):
            return
        description = self._call("describe_collection")
        size, types = None, {}
        for field in description["fields"]:
            if field["name"] == "embedding":
                size = int(field["params"]["dim"])
            else:
                types[field["name"]] = field["type"].name
        is_known = {*types.values()} <= {*DTYPES}
        if size is None or not {"id", "label"} <= {*types} or not is_known:
            raise ValueError(
                "`collection` must have the fields id, label and embedding, "
                f"and columns of {sorted(DTYPES)}. "
                f"Received: {self.collection!r} with {types}."
            )
        properties = description.get("properties", {})
        for name, (key, kind) in KEPT.items():
            if config := json.loads(properties.get(key, "null")):
                setattr(self, f"_{name}", kind.from_config(config))
        if self._call("list_indexes"):
            self._call("load_collection")
        self._schema = size, types
        config = json.loads(properties.get("augmentation", "null"))
        if config and self._augmented is None:
            augmentation = NeighborAugmentation.from_config(config)
            numbers = range(augmentation.rounds + 1)
            rounds = map(self._round_index, numbers)
            self._augmented = AugmentedSearch(
                augmentation, self._round_index, [*rounds]
            )

    def _round_index(self, number):
        name = f"{self.collection}_round{number}"
        return MilvusIndex(self.uri, name, token=self._token)

    def _located(self, near):
        is_near = np.isfinite(near.distances)
        rows, _, ids, _ = self.items(np.unique(near.ids[is_near]))
        vectors = np.zeros((*near.ids.shape, rows.shape[1]), "f4")
        vectors[is_near] = rows[np.searchsorted(ids, near.ids[is_near])]
        return np.full(near.ids.shape, -1), vectors

    def _create(self, columns, size):
        from pymilvus import DataType

        schema = self._client.create_schema(
            auto_id=False, enable_dynamic_field=False
        )
        for name, values in columns.items():
            type_ = TYPES[values.dtype.kind]
            options = {"max_length": MAX_TEXT} if type_ == "VARCHAR" else {}
            options["is_primary"] = name == "id"
            schema.add_field(name, getattr(DataType, type_), **options)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=size)
        self._call("create_collection", schema=schema)
        self._read_schema()
        for name in PROPERTIES:
            self._keep(name, getattr(self, name))
        # Searchable from the first item on. The embedded engine never builds a
        # graph of an empty collection.
        self._build(FLAT)

    def _drop(self):
        """Forgets the collection that a refused `upsert` made."""
        if self._call("has_collection"):
            self._call("drop_collection")
        self._schema = None, {}

    def _build(self, settings):
        self._call("flush")
        self._call("release_collection")
        for name in self._call("list_indexes"):
            self._call("drop_index", index_name=name)
        parameters = self._client.prepare_index_params()
        parameters.add_index("embedding", metric_type="L2", **settings)
        self._call("create_index", index_params=parameters)
        self._call("load_collection")


def _ranked(query, hits, excluded, names):
    """Sorts a query's hits: tuples of exact distance, id, label, ..."""
    hits = [hit for hit in hits if hit["id"] != excluded]
    rows = np.array([hit["entity"]["embedding"] for hit in hits], "float64")
    differences = rows.reshape(len(hits), len(query)) - query
    squares = np.einsum("hs,hs->h", differences, differences)
    return sorted(
        (distance, hit["id"], *(hit["entity"][one] for one in names[1:]))
        for distance, hit in zip(np.sqrt(squares), hits, strict=True)
    )


def _connected(uri, token):
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
        return pymilvus.MilvusClient(uri, token=token or "", timeout=TIMEOUT)
    except pymilvus.exceptions.MilvusException as error:
        raise RuntimeError(
            f"Milvus must answer at {uri!r}; {advice}"
            "docker run -p 127.0.0.1:19530:19530 milvusdb/milvus milvus run "
            f"standalone. Received: {error}."
        ) from error


def _is_path(uri):
    return not uri.startswith(("http://", "https://"))
