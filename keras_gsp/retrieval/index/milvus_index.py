"""A gallery in Milvus: embedded in this process, or a cluster."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_embeddings import (
    checked_embeddings,
    checked_labels,
)
from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index import host_scan
from keras_gsp.retrieval.index.gallery import RESERVED, checked_ids
from keras_gsp.retrieval.index.nearest import (
    SPARE_CANDIDATES,
    ordered_exactly,
)
from keras_gsp.retrieval.index.search_index import (
    Neighbors,
    one_id_each,
    queries_of_size,
)
from keras_gsp.retrieval.index.where import Where, milvus_expression
from keras_gsp.retrieval.matching import MatchThreshold, checked_match

# Rows in one message: Milvus refuses more than 64 MB.
BATCH_NUMBERS = 2**21
MAX_TEXT = 65_535
# What Milvus returns to one query, at most.
MAX_NEIGHBORS = 16_384
# The collection's property that keeps the match threshold, as JSON.
MATCH = "match_threshold"
HNSW = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}}


class MilvusIndex:
    """Searches a gallery that Milvus keeps, larger than memory or shared.

    Needs pymilvus (`pip install 'keras-gsp[milvus]'`). A path is a database
    in that folder, inside this process and for it alone; `http://host:19530`
    is a server or cluster that others use too. All calls are the same.

    Milvus finds most of the nearest items with an HNSW graph, built by
    `build` after items were added; before, it compares with all. What it
    finds is ordered by exact distance, then by id. `certificate` measures
    what it misses.

    Args:
        uri: path ending in `.db`, or `http://...` or `https://...`.
        collection: name of the gallery in there; letters, digits and
            underscores. Made by the first `upsert` if it does not exist.
        token: `user:password` or the token of a server. Default `None`.
        timeout: seconds that a server may take to answer. Default 30.

    Raises:
        ImportError: pymilvus, or for a path milvus-lite, is not installed.
        RuntimeError: the server does not answer, or another process has the
            database open.
        ValueError: an address of another kind; a collection that was made
            otherwise.

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
        """The threshold up to which a neighbor is a match, or `None`.

        What is assigned is kept in the collection, for all who open it.
        """
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
        """Adds items, in place of those of the same id.

        The first call makes the collection and fixes the size, the kinds of
        labels and ids, and the attributes. A call that the engine interrupts
        may be repeated as it was.

        Args:
            embeddings: (items, size), finite; kept as float32.
            labels: (items,), integers, floats or strings; `None` for empty
                strings.
            ids: (items,), integers or strings, all different.
            attributes: arrays (items,) of numbers or strings by name.
        """
        columns = _checked_columns(embeddings, labels, ids, attributes)
        if self._size is None:
            self._create(columns)
        self._check_fits(columns)
        count, size = columns["embedding"].shape
        step = max(1, BATCH_NUMBERS // size)
        names = list(columns)
        for start in range(0, count, step):
            some = [
                list(columns["embedding"][start : start + step])
                if name == "embedding"
                else columns[name][start : start + step].tolist()
                for name in names
            ]
            rows = [
                dict(zip(names, row, strict=True))
                for row in zip(*some, strict=True)
            ]
            self._asked("upsert", data=rows)

    def build(self, settings: Mapping[str, Any] | None = None) -> None:
        """Builds the graph over all items there are.

        To be called once the first items are in: a graph declared on an empty
        collection is never built by the embedded engine. Items that come
        later are taken up by a server; the embedded engine needs `build`
        again.

        Args:
            settings: `index_type` and `params` as Milvus names them. Default
                `None`: HNSW with 32 links.
        """
        self._check_made()
        self._asked("flush")
        self._asked("release_collection")
        for name in self._asked("list_indexes"):
            self._asked("drop_index", index_name=name)
        parameters = self._client.prepare_index_params()
        parameters.add_index(
            "embedding", metric_type="L2", **(settings or HNSW)
        )
        self._asked("create_index", index_params=parameters)
        self._asked("load_collection")

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
            queries: (queries, size), or (size,) for a single one.
            k: number of neighbors, at least 1 and below 16,384. Default 10.
            exclude_ids: one id for each query that must not be returned.
                Default `None`.
            where: as for `ExactIndex.search`; Milvus filters while it
                searches. Default `None`.
            ef: candidates that the graph follows. Default `None`: the larger
                of 64 and four times k.

        Returns:
            `Neighbors`, its `indices` all -1, with `counts` below k where
            fewer were found.

        Raises:
            RuntimeError: an empty collection, or no answer.
            ValueError: NaN or infinity, a wrong size, k out of range, another
                number of ids than of queries.
        """
        check_count(k=k)
        self._check_made()
        queries = queries_of_size(queries, self._size)
        excluded = one_id_each(exclude_ids, len(queries))
        # Ties at the end are broken by id among a few more.
        asked = k + 1 + SPARE_CANDIDATES
        if asked > MAX_NEIGHBORS:
            raise ValueError(
                f"`k` must be at most {MAX_NEIGHBORS - 1 - SPARE_CANDIDATES}, "
                f"what Milvus returns. Received: k={k}."
            )
        expression = milvus_expression(where, self._is_text)
        step = max(1, BATCH_NUMBERS // (asked * self._columns))
        found = []
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            answers = self._asked(
                "search",
                data=list(queries[some]),
                anns_field="embedding",
                limit=asked,
                filter=expression,
                output_fields=["label", "embedding"],
                search_params={
                    "metric_type": "L2",
                    "params": {"ef": max(ef or max(64, 4 * k), asked)},
                },
                consistency_level="Strong",
            )
            found.append(
                self._neighbors(answers, queries[some], excluded[some], k)
            )
        return self._told(
            *(np.concatenate(parts) for parts in zip(*found, strict=True))
        )

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items by reading all of them, in bounded memory.

        For certificates; it moves the whole gallery through this process.

        Args:
            queries: as for `search`.
            k: number of neighbors, at least 1.
        """
        check_count(k=k)
        self._check_made()
        queries = queries_of_size(queries, self._size)
        ids: list[Any] = []
        labels: list[Any] = []
        kept = k + SPARE_CANDIDATES

        def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for rows in self._rows(host_scan.BLOCK_ROWS):
                start = len(ids)
                ids.extend(row["id"] for row in rows)
                labels.extend(row["label"] for row in rows)
                vectors = np.array([row["embedding"] for row in rows], "f4")
                yield vectors, np.arange(start, len(ids))

        origin = np.zeros(self._size or 0, "float32")
        indices = host_scan.nearest_on_host(queries, blocks(), origin, kept)
        wanted = np.unique(indices[indices >= 0])
        vectors = np.zeros((len(wanted), self._size or 0), "float32")
        names = [ids[position] for position in wanted.tolist()]
        for start in range(0, len(names), host_scan.BLOCK_ROWS):
            some = names[start : start + host_scan.BLOCK_ROWS]
            rows = self._asked("get", ids=some, output_fields=["embedding"])
            places = {row["id"]: row["embedding"] for row in rows}
            vectors[start : start + len(some)] = [places[n] for n in some]
        answers = [
            [
                {
                    "id": ids[position],
                    "entity": {
                        "label": labels[position],
                        "embedding": vectors[np.searchsorted(wanted, position)],
                    },
                }
                for position in row[row >= 0].tolist()
            ]
            for row in indices
        ]
        nobody = [None] * len(queries)
        return self._told(*self._neighbors(answers, queries, nobody, k))

    def delete(self, ids: Any) -> int:
        """Removes items by id.

        Args:
            ids: ids of items; one that is not there is passed over.

        Returns:
            How many were there.
        """
        is_one = isinstance(ids, str | bytes) or np.ndim(ids) == 0
        ids = [ids] if is_one else list(ids)
        if self._size is None or not ids:
            return 0
        ids = checked_ids(ids, len(ids)).tolist()
        there = self.count({"id": ids})
        self._asked("delete", ids=ids)
        return there

    def count(self, where: Where | None = None) -> int:
        """Counts the items that a filter lets through.

        Args:
            where: as for `search`.
        """
        if self._size is None:
            return 0
        rows = self._asked(
            "query",
            filter=milvus_expression(where, self._is_text),
            output_fields=["count(*)"],
            consistency_level="Strong",
        )
        return int(rows[0]["count(*)"])

    def close(self) -> None:
        """Lets the database go, so that another process can open it."""
        self._client.close()
        if _is_path(self.uri):
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self.uri)

    @property
    def _is_text(self):
        return {name: kind == "text" for name, kind in self._fields.items()}

    @property
    def _columns(self):
        return (self._size or 1) + len(self._fields)

    def _asked(self, call, **arguments):
        from pymilvus.exceptions import MilvusException

        try:
            return getattr(self._client, call)(self.collection, **arguments)
        except MilvusException as error:
            raise RuntimeError(
                f"Milvus at {self.uri!r} must answer {call!r}. "
                f"Received: {error}."
            ) from error

    def _rows(self, batch_size):
        """Yields lists of all rows, each a dict."""
        iterator = self._asked(
            "query_iterator",
            batch_size=batch_size,
            filter="",
            output_fields=["id", "label", "embedding"],
        )
        try:
            while rows := iterator.next():
                yield rows
        finally:
            iterator.close()

    def _told(self, ids, labels, distances, indices, counts):
        match = self._match
        is_match = None if match is None else match.is_match(distances)
        return Neighbors(ids, labels, distances, indices, counts, is_match)

    def _keep_match(self):
        config = self._match and self._match.get_config()
        self._asked(
            "alter_collection_properties",
            properties={MATCH: json.dumps(config)},
        )

    def _neighbors(self, answers, queries, excluded, k):
        """Ids, labels, distances, indices and counts of Milvus' answers."""
        width = max((len(hits) for hits in answers), default=0)
        places = np.full((len(answers), width), -1)
        vectors = np.zeros((len(answers), width, self._size or 0), "float32")
        ids = _padding(self._fields["id"], places.shape)
        labels = _padding(self._fields["label"], places.shape)
        for i, hits in enumerate(answers):
            # In the order of ids, which breaks ties.
            hits = sorted(
                (hit for hit in hits if hit["id"] != excluded[i]),
                key=lambda hit: hit["id"],
            )
            for j, hit in enumerate(hits):
                places[i, j] = j
                ids[i, j], labels[i, j] = hit["id"], hit["entity"]["label"]
                vectors[i, j] = hit["entity"]["embedding"]
        distances, order = ordered_exactly(queries, vectors, places)
        distances, order = distances[:, :k], order[:, :k]
        is_there = order >= 0
        found = []
        for values in (ids, labels):
            values = np.take_along_axis(values, np.maximum(order, 0), axis=1)
            empty = _padding_value(values)
            values = np.where(is_there, values, empty)
            found.append(values.astype("U") if empty == "" else values)
        counts = is_there.sum(axis=1)
        short = k - distances.shape[1]
        pad = [(0, 0), (0, max(0, min(short, len(self) - distances.shape[1])))]
        return (
            np.pad(found[0], pad, constant_values=_padding_value(found[0])),
            np.pad(found[1], pad, constant_values=_padding_value(found[1])),
            np.pad(distances, pad, constant_values=np.inf).astype("float32"),
            np.full((len(distances), distances.shape[1] + pad[1][1]), -1),
            counts,
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
        if not self._asked("has_collection"):
            return
        description = self._asked("describe_collection")
        for field in description["fields"]:
            kind = field["type"].name
            if kind == "FLOAT_VECTOR" and field["name"] == "embedding":
                self._size = int(field["params"]["dim"])
            else:
                known = {"VARCHAR": "text", "INT64": "integer"}
                self._fields[field["name"]] = known.get(kind, "float")
        if self._size is None or not {"id", "label"} <= set(self._fields):
            raise ValueError(
                "`collection` must have the fields id, label and embedding. "
                f"Received: {self.collection!r} with {sorted(self._fields)}."
            )
        config = json.loads(description.get("properties", {}).get(MATCH, "0"))
        if config:
            self._match = MatchThreshold.from_config(config)
        if self._asked("list_indexes"):
            self._asked("load_collection")

    def _create(self, columns):
        from pymilvus import DataType

        schema = self._client.create_schema(
            auto_id=False, enable_dynamic_field=False
        )
        size = columns["embedding"].shape[1]
        for name, values in columns.items():
            if name == "embedding":
                schema.add_field(name, DataType.FLOAT_VECTOR, dim=size)
                continue
            options: dict[str, Any] = (
                {"is_primary": True} if name == "id" else {}
            )
            kind = _kind(values)
            if kind == "text":
                # A server takes at most 65,535 bytes.
                options["max_length"] = MAX_TEXT
            types = {
                "text": DataType.VARCHAR,
                "integer": DataType.INT64,
                "float": DataType.DOUBLE,
            }
            schema.add_field(name, types[kind], **options)
        self._asked("create_collection", schema=schema)
        self._read_schema()
        if self._match is not None:
            self._keep_match()
        # Searchable from the first item on; `build` makes the graph.
        self.build({"index_type": "FLAT", "params": {}})

    def _check_fits(self, columns):
        size = columns["embedding"].shape[1]
        if size != self._size:
            raise ValueError(
                "`embeddings` must have the size of the gallery. Received: "
                f"{size}, the gallery has {self._size}."
            )
        if set(columns) - {"embedding"} != set(self._fields):
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


def _connected(uri, token, timeout):
    try:
        import pymilvus
    except ImportError as error:
        raise ImportError(
            "`MilvusIndex` needs pymilvus: pip install 'keras-gsp[milvus]'. "
            f"Received: {error}."
        ) from error
    if _is_path(uri):
        _check_embedded(uri)
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        advice = (
            "the folder must be writable and no other process may have it "
            "open; for several, start a server: "
        )
    else:
        advice = "is it running? To start one: "
    try:
        return pymilvus.MilvusClient(uri, token=token or "", timeout=timeout)
    except pymilvus.exceptions.MilvusException as error:
        raise RuntimeError(
            f"Milvus must answer at {uri!r}; {advice}"
            "docker run -p 127.0.0.1:19530:19530 milvusdb/milvus milvus run "
            f"standalone. Received: {error}."
        ) from error


def _check_embedded(uri):
    if "://" in uri or not uri.endswith(".db"):
        raise ValueError(
            "`uri` must be a path ending in .db, or begin with http:// or "
            f"https://. Received: uri={uri!r}."
        )
    try:
        import milvus_lite  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "The embedded engine of `MilvusIndex` needs milvus-lite: "
            "pip install 'keras-gsp[milvus]'; or name a server, "
            f"http://host:19530. Received: {error}."
        ) from error


def _is_path(uri):
    return not uri.startswith(("http://", "https://"))


def _checked_columns(embeddings, labels, ids, attributes):
    embeddings = checked_embeddings(embeddings)
    with np.errstate(over="ignore"):
        embeddings = checked_embeddings(embeddings.astype("float32"))
    count = len(embeddings)
    if ids is None:
        raise ValueError(
            "`ids` must say which items to replace. Received: ids=None."
        )
    ids = checked_ids(ids, count)
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise ValueError(
            "`ids` must all be different. Received: "
            f"{int((counts > 1).sum())} of them twice, for example "
            f"{values[counts > 1][0]!r}."
        )
    labels = np.zeros(count, "U1") if labels is None else labels
    columns = {"id": ids, "label": checked_labels(labels, count)}
    for name, column in (attributes or {}).items():
        if not str(name).isidentifier() or name in RESERVED:
            raise ValueError(
                "Names of `attributes` must be words that are not one of "
                f"{sorted(RESERVED)}. Received: {name!r}."
            )
        columns[name] = checked_labels(column, count, name)
    for name, column in columns.items():
        if column.dtype.kind == "U":
            longest = max(len(text.encode()) for text in column.tolist())
            if longest > MAX_TEXT:
                raise ValueError(
                    f"`{name}` must be at most {MAX_TEXT} bytes long. "
                    f"Received: {longest}."
                )
    return {**columns, "embedding": embeddings}


def _kind(column):
    if column.dtype.kind == "U":
        return "text"
    return "float" if column.dtype.kind == "f" else "integer"


def _padding(kind, shape):
    """An array of "no neighbor" for a kind of column."""
    types = {"text": object, "integer": "int64", "float": "float64"}
    empty = "" if kind == "text" else -1
    return np.full(shape, empty, types[kind])


def _padding_value(values):
    return "" if values.dtype.kind in "OU" else -1
