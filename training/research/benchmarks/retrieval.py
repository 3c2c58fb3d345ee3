"""Search in galleries, compared with faiss alone; and serving.

    python -m training.research.benchmarks.retrieval --json docs/results/retrieval.json

Embeddings are clustered unit vectors, or those of `--run`: one image of each of
half its test classes asks for the others of its class, among distractors of the
other half. A distractor is an image, moved by 0.5 to 1.5 times the difference of
two images of one class, and normalized.

Each contender runs in its own process. Memory is the growth of that process while
it builds and searches, without pages of mapped files. A contender whose engine is
not installed is left out, and graphs above `--graphs-up-to` items. `busy` is the
processor time of all queries; one query is the median of those that are sent
alone for up to ten seconds. Bytes of an item: those of the engine, and of the
vectors for the exact distances, which `load(path, mmap=True)` leaves on the disk.
Recall: share of the true neighbors that are found, with its 95 % interval over
the queries; loss: points of MAP@R below exact search in float32, paired, with the
same interval. At the end, images a second of a whole SavedModel.
"""

import importlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from keras_gsp.metrics.retrieval import ranked_scores
from training.research.report import (
    CommandSettings,
    Measurement,
    Table,
    in_own_process,
    ratio_table,
    run_measurement,
)
from training.runs.environment import peak_memory

GRAPHS = ("FaissIndex HNSW", "faiss HNSW", "MilvusIndex embedded")
EXACT = ("faiss Flat", "ExactIndex")
BLOCK = 1_000_000
"""Items that are made, and added, at once."""
REQUEST = 32
"""Images in one request."""
# Finds the positions (queries, k) of the nearest rows.
Search = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    sizes: tuple[int, ...] = (10_000, 60_000, 500_000)
    """Sizes of the gallery."""
    graphs_up_to: int = 1_000_000
    """Items up to which graphs are built, the longest work."""
    run: Path | None = None
    """Finished run whose encoder and test images make the gallery."""
    embedding_size: int = 128
    num_queries: int = 1000
    """At most; with a run, one for each class."""
    neighbors: int = 10
    repeats: int = 3
    contenders: tuple[str, ...] = ()
    """Names of contenders; by default all. Recall compares with faiss Flat,
    or with ExactIndex."""
    serving: bool = True
    """Whether to serve images too, with an untrained MobileNetV2 (0.35, 224
    pixels), GSP and 10,000 items."""

    SMALL = {
        "sizes": (1000,),
        "embedding_size": 8,
        "num_queries": 20,
        "neighbors": 5,
        "repeats": 1,
        "contenders": ("ExactIndex", "ExactIndex int8"),
        "serving": False,
    }


def indexed(name: str, **options: Any) -> Callable[[np.ndarray], Search]:
    """Returns a function that builds an index in memory, block by block."""

    def build(gallery):
        import keras_gsp as gsp

        index = getattr(gsp.retrieval, name)(gallery[:BLOCK], **options)
        for start in range(BLOCK, len(gallery), BLOCK):
            index.add(gallery[start : start + BLOCK])
        return lambda queries, k: index.search(queries, k).indices

    return build


def on_disk(gallery: np.ndarray) -> Search:
    """`ExactIndex` in float16, read from the disk."""
    import keras_gsp as gsp

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/index"
        gsp.retrieval.ExactIndex(gallery, storage="float16").save(path)
        # The map stays when the folder is gone.
        index = gsp.retrieval.ExactIndex.load(path, mmap=True)
    return lambda queries, k: index.search(queries, k).indices


def milvus(gallery: np.ndarray) -> Search:
    """`MilvusIndex`, embedded, with its HNSW graph."""
    import keras_gsp as gsp

    folder = tempfile.TemporaryDirectory()
    index = gsp.retrieval.MilvusIndex(f"{folder.name}/gallery.db", "items")
    index.upsert(gallery, None, np.arange(len(gallery)))
    index.build()

    def search(queries, k, _folder=folder):
        return index.search(queries, k).ids

    return search


def faiss_alone(
    factory: str, parameters: str | None = None
) -> Callable[[np.ndarray], Search]:
    """Returns a function that builds an index with faiss alone."""

    def build(gallery):
        faiss: Any = importlib.import_module("faiss")

        index = faiss.index_factory(gallery.shape[1], factory)
        index.train(gallery)
        index.add(gallery)
        if parameters is not None:
            faiss.ParameterSpace().set_index_parameters(index, parameters)
        return lambda queries, k: index.search(queries, k)[1]

    return build


GRAPH = {"factory": "HNSW32", "parameters": "efSearch=64"}
CONTENDERS: dict[str, Callable[[np.ndarray], Search]] = {
    "faiss Flat": faiss_alone("Flat"),
    "ExactIndex": indexed("ExactIndex"),
    "ExactIndex float16": indexed("ExactIndex", storage="float16"),
    "ExactIndex int8": indexed("ExactIndex", storage="int8"),
    "ExactIndex float16 on disk": on_disk,
    "FaissIndex Flat": indexed("FaissIndex"),
    "FaissIndex IVF": indexed(
        "FaissIndex", factory="IVF256,Flat", parameters="nprobe=32"
    ),
    "FaissIndex HNSW": indexed("FaissIndex", **GRAPH),
    **{
        f"FaissIndex {word}, float16{more}": indexed(
            "FaissIndex", factory=factory, storage="float16", **options
        )
        for word, factory in (("binary", "LSHr"), ("RaBitQ", "RaBitQ"))
        for more, options in (("", {}), (", 1000 rescored", {"rescore": 1000}))
    },
    "faiss HNSW": faiss_alone(**GRAPH),
    "ScannIndex": indexed("ScannIndex"),
    "MilvusIndex embedded": milvus,
}
# Word in a contender's name -> bytes of each number, and of an item besides: of
# the engine, whose codes or vectors a search reads, and of the vectors for the
# exact distances, which `load(path, mmap=True)` leaves on the disk.
ENGINE_BYTES: dict[str, tuple[float, int]] = {
    "Flat": (4, 0),
    "IVF": (4, 8),
    "HNSW": (4, 256),
    "binary": (1 / 8, 0),
    "RaBitQ": (1 / 8, 8),
}
VECTOR_BYTES = {"faiss ": (0, 0), "float16": (2, 0), "int8": (1, 4)}
UNKNOWN_BYTES = ("ScannIndex", "MilvusIndex embedded")


class Memory:
    """The largest memory of this process, looked at fifty times a second.

    Pages of files that are mapped are not counted: the system takes them back
    whenever it wants. Elsewhere than on Linux they are.
    """

    def __init__(self) -> None:
        self.peak = self._now()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            self.peak = max(self.peak, self._now())
            time.sleep(0.02)

    def _now(self):
        status = Path("/proc/self/status")
        if not status.exists():
            return peak_memory() / 2**20
        facts = dict(one.split(":") for one in status.read_text().splitlines())
        return int(facts["RssAnon"].split()[0]) / 1024


def search_alone(
    name: str, folder: str, k: int, repeats: int
) -> dict[str, Any]:
    """Builds on a small part to load libraries, then on all, and searches."""
    gallery = np.load(f"{folder}/gallery.npy", mmap_mode="r")
    queries = np.load(f"{folder}/queries.npy")
    build = CONTENDERS[name]
    build(gallery[:1000])(queries[:10], k)
    memory = Memory()
    before = memory.peak
    start = time.perf_counter()
    search = build(gallery)
    found = {"build_seconds": time.perf_counter() - start}
    times = []
    for _ in range(repeats):
        start, start_busy = time.perf_counter(), time.process_time()
        positions = search(queries, k)
        times.append(
            (time.perf_counter() - start, time.process_time() - start_busy)
        )
    single = []
    for query in queries[:20]:
        start = time.perf_counter()
        search(query[None], k)
        single.append(time.perf_counter() - start)
        if sum(single) > 10:
            break
    seconds, busy = zip(*times, strict=True)
    return found | {
        "seconds": seconds,
        "busy_seconds": busy,
        "single_seconds": single,
        "growth_mb": memory.peak - before,
        "found": positions,
    }


def clustered(count: int, settings: Settings, seed: int) -> np.ndarray:
    """Returns unit vectors around a thousand centers."""
    centers = np.random.default_rng(0).standard_normal(
        (1000, settings.embedding_size), dtype="float32"
    )
    rng = np.random.default_rng(seed)
    rows = centers[rng.integers(1000, size=count)]
    rows = rows + rng.standard_normal(rows.shape, dtype="float32")
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@dataclass(frozen=True)
class Galleries:
    """Queries, items of their classes, and what distractors are made of."""

    queries: np.ndarray
    items: np.ndarray
    others: np.ndarray
    other_labels: np.ndarray
    relevant: np.ndarray
    """(queries, items), whether an item is of a query's class."""

    @classmethod
    def of_run(cls, run: Path, settings: Settings) -> "Galleries":
        """Embeds the test images of a run and divides their classes."""
        from training.recipes.data import load_splits
        from training.runs.run_directory import RunDirectory
        from training.runs.scoring import embed, load_encoder

        directory = RunDirectory(run)
        recipe = directory.read_recipe().with_(cache_features=False)
        test = load_splits(recipe).test
        rows = embed(load_encoder(directory), recipe, test)
        is_other = test.labels % 2 == 1
        firsts = np.unique(test.labels, return_index=True)[1]
        firsts = firsts[~is_other[firsts]][: settings.num_queries]
        is_item = ~is_other
        is_item[firsts] = False
        relevant = test.labels[firsts][:, None] == test.labels[is_item]
        most = relevant.sum(axis=1).max()
        if most > settings.neighbors:
            raise ValueError(
                f"`neighbors` must be at least {most}, the images of a class. "
                f"Received: neighbors={settings.neighbors}."
            )
        others = rows[is_other], test.labels[is_other]
        return cls(rows[firsts], rows[is_item], *others, relevant)

    def distractors(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Returns images moved along the difference of two of one class."""
        order = np.argsort(self.other_labels, kind="stable")
        rows, labels = self.others[order], self.other_labels[order]
        starts = np.searchsorted(labels, labels)
        sizes = np.searchsorted(labels, labels, side="right") - starts
        one = rng.integers(len(rows), size=count)
        two = rng.choice(np.flatnonzero(sizes > 1), count)
        further = rng.integers(1, sizes[two])
        three = starts[two] + (two - starts[two] + further) % sizes[two]
        # Equal items would make the nearest ones a matter of luck.
        length = rng.uniform(0.5, 1.5, (count, 1)).astype("float32")
        found = rows[one] + length * (rows[two] - rows[three])
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def write_gallery(
    path: str, count: int, settings: Settings, galleries: Any
) -> None:
    """Writes a gallery of unit vectors, (count, size), in blocks."""
    if galleries is None:
        np.save(path, clustered(count, settings, 1))
        return
    items, rng = galleries.items, np.random.default_rng(1)
    shape = count, items.shape[1]
    rows = np.lib.format.open_memmap(path, "w+", "float32", shape)
    rows[: len(items)] = items
    for start in range(len(items), count, BLOCK):
        size = min(BLOCK, count - start)
        rows[start : start + size] = galleries.distractors(size, rng)
    rows.flush()


def compare(
    count: int, settings: Settings, galleries: Any = None
) -> list[Measurement]:
    """Runs every contender on one gallery."""
    names = list(settings.contenders or CONTENDERS)
    if count > settings.graphs_up_to:
        names = [name for name in names if name not in GRAPHS]
    with tempfile.TemporaryDirectory() as folder:
        write_gallery(f"{folder}/gallery.npy", count, settings, galleries)
        queries = clustered(settings.num_queries, settings, 2)
        if galleries is not None:
            queries = galleries.queries
        np.save(f"{folder}/queries.npy", queries)
        runs = {
            name: _run(name, folder, settings)
            for name in tqdm(names, desc=f"{count} items")
        }
        runs = {name: run for name, run in runs.items() if run is not None}
        true = next(runs[name]["found"] for name in EXACT if name in runs)
        return [
            _measurement(name, run, true, settings, galleries)
            for name, run in runs.items()
        ]


def serve(settings: Settings) -> list[Measurement]:
    """Sends JPEG images of 256 pixels to every signature of a SavedModel."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        model = tf.saved_model.load(_untrained(f"{folder}/model", settings))
        pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3))
        pixels = np.kron(pixels, np.ones((16, 16, 1))).astype("uint8")
        batch = tf.repeat(tf.io.encode_jpeg(pixels)[None], REQUEST)
        found = []
        for name in ("embed", "search_exact"):
            signature = model.signatures[name]
            signature(image_bytes=batch)
            seconds = []
            for _ in range(10 * settings.repeats):
                start = time.perf_counter()
                signature(image_bytes=batch)["status"].numpy()
                seconds.append(time.perf_counter() - start)
            rate = REQUEST / np.median(seconds)
            facts = {"images/s": f"{rate:.0f}"}
            found.append(Measurement(name, tuple(seconds), facts))
        return found


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each size, and one for serving."""
    run = settings.run
    galleries = Galleries.of_run(run, settings) if run else None
    if galleries is not None:
        num_queries, size = galleries.queries.shape
        settings = replace(
            settings, num_queries=num_queries, embedding_size=size
        )
    for count in settings.sizes:
        yield ratio_table(
            compare(count, settings, galleries),
            f"{settings.num_queries:,} queries, {settings.neighbors} "
            f"neighbors among {count:,} x {settings.embedding_size}",
        )
    if settings.serving:
        yield ratio_table(
            serve(settings),
            f"Requests of {REQUEST} JPEG images, 256 pixels",
            "signature",
        )


def _run(name, folder, settings):
    sizes = settings.neighbors, settings.repeats
    try:
        return in_own_process(search_alone, name, folder, *sizes)
    except ImportError as error:
        tqdm.write(f"{name}: left out: {error}")
        return None


def _measurement(name, run, true, settings, galleries):
    shared = [
        len(np.intersect1d(one, other)) / settings.neighbors
        for one, other in zip(run["found"], true, strict=True)
    ]
    rate = len(true) / np.median(run["seconds"])
    facts = {
        "queries/s": f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}",
        "busy": f"{np.median(run['busy_seconds']):.3g} s",
        "one query": f"{np.median(run['single_seconds']) * 1e3:.3g} ms",
        "built in": f"{run['build_seconds']:.2f} s",
        "memory grows by": f"{run['growth_mb']:,.0f} MB",
        "bytes an item": _bytes(name, settings.embedding_size),
        "recall": f"{np.mean(shared):.4f} ± {_half_width(shared):.4f}",
    }
    if galleries is not None:
        own, exact = (_map_at_r(one, galleries) for one in (run["found"], true))
        loss = 100 * (exact - own)
        facts["MAP@R %"] = f"{100 * own.mean():.2f}"
        facts["loss"] = f"{loss.mean():.2f} ± {_half_width(loss):.2f}"
    return Measurement(name, tuple(run["seconds"]), facts)


def _map_at_r(positions, galleries):
    """MAP@R of each query; its items come first in the gallery."""
    relevant = galleries.relevant
    # One more column, for all distractors.
    padded = np.pad(relevant, ((0, 0), (0, 1)))
    places = np.minimum(positions, relevant.shape[1])
    is_correct = np.take_along_axis(padded, places, axis=1)
    queries, ranks = np.nonzero(is_correct)
    counts = relevant.sum(axis=1)
    return ranked_scores(queries, ranks + 1, counts)["map_at_r"]


def _bytes(name, size):
    """Bytes of the engine and of the vectors, for example `16 + 512`."""
    if name in UNKNOWN_BYTES:
        return ""
    parts = []
    for table, default in ((ENGINE_BYTES, (0, 0)), (VECTOR_BYTES, (4, 0))):
        each, more = next((b for w, b in table.items() if w in name), default)
        parts.append(each * size + more)
    return " + ".join(f"{part:.0f}" for part in parts)


def _half_width(shares):
    """Half the width of the mean's 95 % interval over the queries."""
    return 1.96 * np.std(shares, ddof=1) / np.sqrt(len(shares))


def _untrained(path, settings):
    import keras

    import keras_gsp as gsp

    inputs = keras.Input((224, 224, 3))
    network = keras.applications.MobileNetV2(
        input_shape=(224, 224, 3), alpha=0.35, include_top=False, weights=None
    )
    features = network(keras.layers.Rescaling(1 / 127.5, -1.0)(inputs))
    encoder = gsp.models.build_encoder(
        keras.Model(inputs, features),
        embedding_size=settings.embedding_size,
        pooling=gsp.layers.GeneralizedSumPooling(),
    )
    index = gsp.retrieval.ExactIndex(clustered(10_000, settings, 1))
    gsp.retrieval.export_retriever(
        encoder, index, path, crop_fraction=224 / 256
    )
    return path


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
