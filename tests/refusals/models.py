"""What models refuse."""

import functools

import keras
import numpy as np
import pytest

from keras_gsp import layers, losses, models
from keras_gsp._encoding import embedding_of
from keras_gsp.losses.metric_loss import MetricLoss
from tests.models.test_encoder import feature_backbone as feature_map
from tests.models.test_encoder import masked_patches
from tests.models.test_two_looks import encoder_of as encoder
from tests.refusals._rows import out_of_range, rows


def gray():
    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])


def tokens():
    layer = keras.layers.Reshape((-1, 3))
    return encoder(layer=layer, prefix_tokens=1, prefix="keep")


def two_looks(first=encoder, second=None, **options):
    return models.TwoLooks(first(), second and second(), **options)


def multi_view(make=encoder, **options):
    return models.MultiView(make(), **options)


def with_histogram(has_histogram=True):
    pooling = layers.GeneralizedSumPooling(5, return_histogram=has_histogram)
    return encoder(pooling=pooling, size=8)


def learner(encoder=None, regularizer=None, **arguments):
    encoder, arguments["regularizer"] = encoder or with_histogram(), regularizer
    return models.MetricLearner(encoder, **arguments)


def compiled(loss, proxies=None, memory=None):
    learner(proxies=proxies, memory=memory).compile("sgd", loss=loss)


def trained(chunks=1, active=None, sample_weight=None):
    options = {"name": "active", "activity_regularizer": active}
    layer = keras.layers.Conv2D(8, 2, strides=2, **options)
    model = learner(encoder(layer=layer), batch_chunks=chunks)
    model.compile("sgd", loss=PAIR, run_eagerly=True)
    images = np.zeros((24, 16, 16, 3))
    model.train_on_batch(images, np.arange(24) // 4, sample_weight)


IMAGES = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
CODES = np.repeat(np.arange(4), 2)
NAMES = np.array(["ant", "bee", "cat", "dog"])[CODES]


def fitted(labels=CODES, parts="", how="fit", data=None, unbatched=False):
    """No label is trained on, and no weight moves."""
    layer = {
        "": {},
        "memory": {"memory": layers.EmbeddingMemory(16)},
        "proxies": {"proxies": layers.ClassProxies(4)},
    }[parts]
    network = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4)])
    model = learner(network, **layer)
    model.compile("sgd", loss=PAIR, run_eagerly=True)
    before = model.get_weights()
    try:
        given = [IMAGES, labels] if data is None else [data()]
        given = [given[0].unbatch()] if unbatched else given
        getattr(model, how)(*given)
    finally:
        np.testing.assert_equal(model.get_weights(), before)


def tensors(data):
    tf = pytest.importorskip("tensorflow")
    return lambda: tf.data.Dataset.from_tensors(data)


def build(network=feature_map, **options):
    return models.build_encoder(network(), **options)


def pooled():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])


def patches():
    layers = keras.Input((4, 4, 3)), keras.layers.Reshape((6, 8))
    return keras.Sequential(layers)


def initialize(images, size=3, **options):
    network = build(feature_map, embedding_size=size, **options)
    models.initialize_projection(network, images)


def pictures(count=40):
    return np.random.default_rng(0).normal(size=(count, 16, 16, 3))


TWO_HISTOGRAMS = {
    "pooling": layers.GeneralizedSumPooling(5, return_histogram=True),
    "histogram": layers.PrototypeHistogram(5),
}
PAIR, NCA = losses.ContrastiveLoss(), losses.ProxyNCALoss()
PROXIES = layers.ClassProxies(6)
CROSS_BATCH = losses.CrossBatchLoss(PAIR)
of_any_size = functools.partial(encoder, side=None)
average = functools.partial(
    encoder, pooling=keras.layers.GlobalAveragePooling2D()
)
ROWS = [
    *out_of_range(
        two_looks, {"combine": ["both"], "mass": [0.0], "window": [1.5]}
    ),
    *rows(
        two_looks,
        ((average,), "`pooling_weights`.*Received: 0 in the"),
        ((tokens,), "feature map"),
        ((of_any_size,), "`first` must take images of a known size"),
        ((encoder, lambda: encoder(size=5)), r"\[6, 5\]"),
        ((encoder, gray), "channels. Received: 3 and 1"),
    ),
    *out_of_range(multi_view, {"scales": [()]}),
    (multi_view, {"scales": (0.0,)}, "`scales` must be .*Received: scales=0.0"),
    (multi_view, {"scales": (1.0, 0.5)}, "images of any size.*16, 16"),
    *out_of_range(
        learner,
        {
            "regularizer_weight": [1.5],
            "anchor_weight": [-1.0],
            "in_batch_weight": [-0.1, 0.5],
            "batch_chunks": [0],
        },
    ),
    *rows(
        learner,
        ({"regularizer": losses.ZeroShotLoss()}, "class_embeddings=None"),
        ({"regularizer": losses.CrossBatchLoss(NCA)}, "proxies=None"),
        ((with_histogram(False), CROSS_BATCH), "return_histogram=True"),
        ({"log_regularizer_share": True}, "a regularizer, and TensorFlow"),
    ),
    *rows(
        compiled,
        (("mse",), "pair loss or a proxy loss"),
        ((CROSS_BATCH,), r"MetricLearner\(regularizer=CrossBatchLoss"),
        ((NCA,), "ProxyNCALoss needs proxies"),
        ((NCA, PROXIES, layers.EmbeddingMemory(4)), "need a pair loss"),
        ((MetricLoss(), PROXIES), "MetricLoss cannot use `proxies`"),
    ),
    *rows(
        build,
        ({"prefix_tokens": 1}, "need tokens"),
        (TWO_HISTOGRAMS, "Only one of"),
        ({"lora_rank": 99}, "lora_rank=99.*Lower it"),
        ((pooled,), "without its top.*backbone.get_layer"),
        ((keras.Sequential,), "must be a built Keras model"),
    ),
    *rows(
        functools.partial(build, patches),
        ({"prefix_tokens": -1}, "prefix_tokens=-1"),
        ({"prefix_tokens": 7}, "prefix_tokens=7, tokens of sh"),
        ({"grid_shape": (0, 2)}, "rows=0"),
        ({"prefix": "concatenate"}, "at least 1 with"),
    ),
    (
        build,
        {"network": masked_patches, "grid_shape": (2, 3)},
        "count: it has no mask",
    ),
    *rows(
        initialize,
        ((pictures(), None), "layers named"),
        ((pictures(), 7), "7 dimensions, 6 channels, 40 images"),
    ),
    (models.truncate_encoder, (encoder(), 9), "truncate_to=9"),
    (trained, {"sample_weight": np.ones(24)}, "no sample weights"),
    (trained, (5,), "multiple of `batch_chunks=5`"),
    (trained, (2, "l2"), "activity regularizers.*'active'"),
    *rows(
        fitted,
        ((CODES + 1, "proxies"), "num_classes=4.*Received: 4"),
        ((NAMES, "proxies"), "num_classes=4.*Received: .*'ant'"),
        # A code of its own for each batch would join classes in a memory.
        ((NAMES, "memory", "train_on_batch"), "unique"),
        ({"data": tensors((IMAGES, NAMES))}, "Received: .*string"),
        ({"data": tensors({"image": IMAGES})}, r"keys \['image'\]"),
        ({"data": tensors((IMAGES, CODES)), "unbatched": True}, r"batch\(64"),
        ({"data": lambda: {"image": IMAGES}}, "no labels"),
    ),
    (embedding_of, ({"pooled": np.ones((2, 8))},), r"keys \['pooled'\]"),
    (embedding_of, (np.ones((2, 3, 8)),), r"\(2, 3, 8\)"),
]
if keras.backend.backend() == "torch":
    ROWS += [(learner, {"batch_chunks": 2}, "needs TensorFlow or JAX")]
