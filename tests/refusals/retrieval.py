"""What indexes, and what reads them, refuse."""

import importlib.util

import keras
import numpy as np

from keras_gsp import retrieval
from keras_gsp.retrieval import ExactIndex, MatchThreshold, MilvusIndex
from keras_gsp.retrieval.upgrade import SpaceMap
from tests.refusals._rows import out_of_range, rows
from tests.retrieval.test_explain import encoder_with, pooling
from tests.retrieval.test_upgrade import DATA, encoder

average = keras.layers.GlobalAveragePooling2D
DRAW = np.random.default_rng(0)
ROWS_OF_8 = DRAW.normal(size=(3, 8))
BAD = np.where(np.arange(24).reshape(3, 8) == 9, np.nan, ROWS_OF_8)
COLUMNS = {"color": ["a", "b", "c"], "year": [1, 2, 3]}
IDS = ["x", "y", "z"]
MASKED = np.ma.masked_array([1, 2], [True, False])
COMPLEX, RAGGED = np.ones((2, 8)) * 1j, [[1.0, 2.0], [1.0]]


def index():
    return ExactIndex(ROWS_OF_8, [1, 2, 3], IDS, attributes=COLUMNS)


def upsert(rows=ROWS_OF_8, labels=(4, 5, 6), ids=IDS, attributes=COLUMNS):
    """The rows of the index are as they were."""
    whole = index()
    try:
        whole.upsert(rows, labels, ids, attributes)
    finally:
        assert (whole.items(IDS)[0] == ROWS_OF_8.astype("float32")).all()


def first(labels=(1, 2), ids=(1, 2), attributes=None, rows=ROWS_OF_8[:2]):
    """Nor does an empty index take a type or a size."""
    empty = ExactIndex()
    try:
        empty.upsert(rows, labels, ids, attributes)
    finally:
        assert len(empty) == 0 and empty.embedding_size is None


def search(queries=ROWS_OF_8, **options):
    index().search(queries, **options)


def count(where):
    index().count(where)


def noisy(count=60, classes=9, noise=0.8):
    labels = np.arange(count) % classes
    centers = np.random.default_rng(1).normal(size=(classes, 5))
    draws = np.random.default_rng(2).normal(size=(count, 5))
    return centers[labels] + noise * draws, labels


def calibrated(scale=1, **options):
    points, labels = noisy(12, 4)
    MatchThreshold.calibrated(scale * points, labels, **options)


def calibrated_among(held_out):
    points, labels = noisy(300, 60, 0.01)
    gallery = ExactIndex(points[labels < 30], labels[labels < 30])
    MatchThreshold.calibrated(
        points[held_out(labels)],
        labels[held_out(labels)],
        gallery=gallery,
        false_accept_rate=1e-3,
    )


def embedded(seed=0):
    return ExactIndex.from_encoder(encoder(seed, 12), DATA)


def upgrade(gallery=embedded, new=1, count=96, into=None):
    sample = [part[:count] for part in DATA]
    encoders, into = (encoder(seed, 12) for seed in (0, new)), into and into()
    retrieval.upgrade(gallery(), *encoders, tuple(sample), into=into)


def halfway():
    return retrieval.Upgrade(embedded(), ExactIndex(), SpaceMap(np.eye(12)))


def bare(layer):
    return encoder_with(layer, size=None)


def separate_values():
    inputs = keras.Input((8, 8, 3))
    matched = keras.layers.Conv2D(6, 3)(inputs)
    pooled = pooling()(matched, values=keras.layers.ReLU()(matched))
    return keras.Model(inputs, pooled)


def explain(make, counts=(1, 1)):
    images = [np.ones((count, 8, 8, 3)) for count in counts]
    retrieval.explain(make(), *images)


def means(shape=(24, 24, 3)):
    layers = [keras.Input(shape), keras.layers.GlobalAveragePooling2D()]
    return keras.Sequential(layers)


def export(model=means, size=3, **options):
    gallery = options.pop("index", ExactIndex(np.eye(size)))
    retrieval.export_retriever(model(), gallery, "exported", **options)


chosen = retrieval.NeighborAugmentation.chosen
ROWS = [
    *rows(
        upsert,
        ({"rows": ROWS_OF_8[:, :3]}, "gallery has 8"),
        ({"rows": BAD}, "1 of 3 rows.*row 1"),
        ({"rows": ROWS_OF_8 * 1e300}, "3 of 3 rows"),
        ({"rows": ROWS_OF_8[:0], "labels": []}, r"shape \(0, 8\)"),
        ({"labels": [1] * 2}, r"`labels`.*\(2,\)"),
        ({"labels": ["x"] * 3}, "`labels` must be numbers"),
        ({"ids": ["a", "b", "a"]}, "example 'a'"),
        ({"ids": [1, 2, 3]}, "`ids` must be strings"),
        ({"ids": None}, "`ids`.*NoneType"),
        ({"attributes": {"year": [1] * 3}}, r"\['year'\]"),
    ),
    *rows(
        first,
        ({"labels": [1, "a"]}, "`labels`.*one type"),
        ({"ids": [1, 2**63]}, "`ids`.*int64.*strings.*to 92233"),
        ({"ids": [1.5, 2]}, "`ids`.*int64 holds.*1.5"),
        ({"ids": ["a", "a\0"]}, "NUL"),
        ({"labels": [1, np.nan]}, "`labels` must not be NaN"),
        ({"labels": MASKED}, "masked"),
        ({"labels": np.array(["2020", "2021"], "M8[D]")}, "datetime"),
        ({"attributes": {"a": ["x", np.nan]}}, "`a`.*float"),
        ({"attributes": [1, 2]}, "`attributes` must be a dict"),
        ({"attributes": {"a-b": [1, 2]}}, "be words"),
        ({"rows": COMPLEX}, "`embeddings` must"),
        ({"rows": RAGGED}, "`embeddings` must"),
    ),
    *rows(
        search,
        ({"queries": BAD}, "`queries` must be finite"),
        ({"queries": ROWS_OF_8 * 1e18}, r"within 1e\+17"),
        ({"queries": np.ones((5, 3, 7))}, r"shape \(5, 3, 7\)"),
        ({"k": 0}, "k=0"),
        ({"exclude_ids": ["a"]}, "1 ids for 3 queries"),
        ({"exclude_ids": [5] * 3}, "`ids` must be strings"),
        ({"where": {"size": 3}}, r"'color', 'id', 'la"),
        ({"group_by": "shop"}, "`group_by`.*'color'.*shop"),
        ({"within": -1.0}, "within=-1"),
        ({"diversity": 1.5}, "diversity=1.5"),
        ({"queries": None}, "or `queries` be given"),
        ({"queries": None, "like": ["x", "u"]}, "Received: 'u', which is"),
        ({"like": ["x"]}, "must be a single one"),
    ),
    *(
        (count, (where,), message)
        for where, message in (
            ("year > 1", "`where` must be a dict.*where='year > 1'"),
            ({"year": None}, "`where` must be.*NoneType"),
            ({"year": slice(0, np.inf)}, "finite.*no end"),
            ({"year": slice(1, 9, 2)}, "no step"),
            ({"year": np.nan}, "finite"),
            ({"label": "3"}, "'label' with numb"),
            ({"color": [3]}, "with strings. Rec"),
        )
    ),
    (lambda: index().search(ROWS_OF_8, whithin=1), (), r"search\(\).*whithin"),
    (retrieval.export_encoder, {"pixels": 9}, r"export_encoder\(\).*pixels"),
    (lambda: setattr(index(), "match", 0.5), (), "match=0.5"),
    *rows(
        ExactIndex,
        ({"storage": "int8"}, "storage='int8'"),
        ({"embeddings": [[1e5]], "storage": "float16"}, "65504"),
        ({"augmentation": 2}, "NeighborAugmentation"),
    ),
    (MilvusIndex, ("gallery", "a"), "path ending in .db"),
    (MilvusIndex, ("gallery.db", "a b"), "letters, digits"),
    *rows(
        MatchThreshold,
        ((np.nan, 0.1, 0.9, 1, 1), "distance=nan"),
        ((1.0, 1.0, 0.9, 1, 1), "false_accept_rate=1.0"),
        ((1.0, 0.1, 1.9, 1, 1), "true_accept_rate=1.9"),
        ((1.0, 0.1, 0.9, 0, 1), "num_positive_pairs=0"),
    ),
    *rows(
        calibrated,
        ({}, "pairs.*at least"),
        ({"false_accept_rate": 0}, "false_accept_rate=0"),
        ({"scale": 0, "false_accept_rate": 0.5}, "54 pairs are identical"),
        ({"gallery": ExactIndex()}, "call `upsert` first"),
    ),
    (calibrated_among, (lambda y: y >= 0,), "not be in the gallery"),
    (calibrated_among, (lambda y: y > 57,), "one of the held-out searches"),
    *rows(
        retrieval.suspects,
        ((ROWS_OF_8, np.zeros(3)), "at least two classes. Received: 1"),
        ((np.zeros((3, 8)), [1, 2, 2]), "3 rows of zeros"),
    ),
    (retrieval.duplicates, (np.ones((1, 3)),), "two items"),
    *rows(
        upgrade,
        ((ExactIndex,), "an empty index"),
        ((lambda: embedded(2),), "made by another encoder"),
        ((halfway,), "into=None for upgraded"),
        ({"into": embedded}, "`into` must hold"),
        ({"new": 0}, "nothing is to be upgraded"),
        ({"count": 20}, "at least 12 classes.*Received: 5"),
    ),
    *rows(
        explain,
        ((lambda: bare(average()),), "from GlobalAveragePooling2D"),
        ((lambda: bare(pooling(power=3.0)),), "power=3.0"),
        ((separate_values,), "separate values"),
        ((lambda: keras.layers.Dense(3),), "Received: Dense"),
        ((lambda: bare(pooling()), (2, 1)), "2 and 1"),
    ),
    *rows(
        export,
        ((lambda: encoder(0, 12),), r"inputs of shape \[\(None, 12\)\]"),
        ((lambda: means((None, None, 3)),), "fixed size"),
        ({"neighbors": 0}, "neighbors=0"),
        ({"size": 5}, "3. Received: 5"),
        (
            {"index": ExactIndex(np.eye(3)[:1], ids=["\udcff"])},
            r"\\udcff'. Rename it",
        ),
        ({"index": ExactIndex()}, "empty"),
    ),
    *out_of_range(
        retrieval.NeighborAugmentation,
        {
            "num_neighbors": [-1],
            "rounds": [0],
            "power": [0.0],
            "original_weight": [-1.0],
        },
    ),
    (chosen, (ROWS_OF_8, [0, 1, 2]), "class of two"),
    (lambda: chosen(*noisy(), score="recall"), (), "score"),
]
if importlib.util.find_spec("faiss"):
    ROWS += rows(
        lambda **options: retrieval.FaissIndex(np.zeros((9, 8)), **options),
        ({"factory": "Forest"}, "factory='Forest'.*could not parse"),
        ({"factory": "IVF0,Flat"}, "one cluster or two.*'IVF0,Flat'"),
        ({"factory": "IDMap,Flat"}, "the index keeps the ids"),
        ({"factory": "IVF4,Flat", "rescore": 50}, "`rescore` must be None"),
        ({"factory": "RaBitQ", "rescore": 0}, "rescore=0"),
        ({"parameters": "nprobe=3"}, "parameters='nprobe=3'"),
    )
