"""What models refuse."""

import functools

import keras
import numpy as np
import pytest

from keras_gsp import layers, losses, models
from keras_gsp._encoding import embedding_of
from keras_gsp.losses.metric_loss import MetricLoss
from tests.refusals._rows import out_of_range


def encoder(side=16, layer=None, pooling=None, size=6, **options):
    """A convolution, pooled."""
    backbone = keras.Sequential(
        [
            keras.Input((side, side, 3)),
            layer or keras.layers.Conv2D(8, 2, strides=2),
        ]
    )
    pooling = pooling or layers.GeneralizedSumPooling(4, transport_ratio=0.1)
    return models.build_encoder(
        backbone, embedding_size=size, pooling=pooling, **options
    )


def gray():
    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])


def tokens():
    layer = keras.layers.Reshape((-1, 3))
    return encoder(layer=layer, prefix_tokens=1, prefix="keep")


def two_looks(first=encoder, second=None, **options):
    return models.TwoLooks(first(), second and second(), **options)


def look(images):
    return models.TwoLooks(encoder(side=16)).boxes(images)


def multi_view(make=encoder, **options):
    return models.MultiView(make(), **options)


def with_histogram(has_histogram=True):
    pooling = layers.GeneralizedSumPooling(5, return_histogram=has_histogram)
    return encoder(pooling=pooling, size=8)


def learner(encoder=None, **arguments):
    return models.MetricLearner(encoder or with_histogram(), **arguments)


def compiled(loss, **arguments):
    learner(**arguments).compile("sgd", loss=loss)


def trained(labels=24, sample_weight=None):
    model = learner()
    model.compile("sgd", loss=PAIR, run_eagerly=True)
    images = np.zeros((24, 16, 16, 3))
    model.train_on_batch(images, np.arange(labels) // 4, sample_weight)


def chunked(chunks, **options):
    layer = keras.layers.Conv2D(8, 2, strides=2, name="active", **options)
    model = learner(encoder(layer=layer), batch_chunks=chunks)
    model.compile("sgd", loss=PAIR, run_eagerly=True)
    model.train_on_batch(np.zeros((24, 16, 16, 3)), np.arange(24) // 4)


IMAGES = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
CODES = np.repeat(np.arange(4), 2)
NAMES = np.array(["ant", "bee", "cat", "dog"])[CODES]
NAN = np.where(CODES == 3, np.nan, CODES)


def fitted(labels=CODES, parts="", how="fit", data=None):
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
        getattr(model, how)(*([IMAGES, labels] if data is None else [data()]))
    finally:
        np.testing.assert_equal(model.get_weights(), before)


def tensors(data, make="from_tensors"):
    tf = pytest.importorskip("tensorflow")
    return lambda: getattr(tf.data.Dataset, make)(data)


class ListWise(MetricLoss):
    """A loss that takes embeddings alone."""

    def call(self, labels, embeddings):
        return keras.ops.sum(keras.ops.square(embeddings), axis=-1)


def build(network, **options):
    return models.build_encoder(network(), **options)


def feature_map():
    return keras.Sequential(
        [keras.Input((16, 16, 3)), keras.layers.Conv2D(6, 4, strides=4)]
    )


def pooled():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])


def patches(*others):
    return keras.Sequential(
        [
            keras.Input((4, 4, 3)),
            keras.layers.Reshape((6, 8)),
            *others,
        ]
    )


def masked_patches():
    return patches(keras.layers.Masking())


def initialize(images, size=3, **options):
    network = build(feature_map, embedding_size=size, **options)
    models.initialize_projection(network, images)


def proxy_optimizer(rates, model=None, optimizer=None):
    model = model or keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(4, name="encoder"),
            layers.ClassProxies(3, name="class_proxies"),
        ]
    )
    optimizer = optimizer or keras.optimizers.Adam()
    return models.proxy_optimizer(model, optimizer, rates)


def pictures(count=40):
    return np.random.default_rng(0).normal(size=(count, 16, 16, 3))


SCALED = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
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
    (two_looks, (average,), "`pooling_weights`.*Received: 0 in the"),
    (two_looks, (tokens,), "feature map"),
    (two_looks, (of_any_size,), "`first` must take images of a known size"),
    (two_looks, (encoder, of_any_size), "`second` must take"),
    (two_looks, (encoder, lambda: encoder(size=5)), r"\[6, 5\]"),
    (two_looks, (encoder, gray), "channels. Received: 3 and 1"),
    (look, (["a.jpg"],), "`images` must be an array"),
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
    (
        learner,
        {"regularizer": losses.ZeroShotLoss()},
        "class_embeddings=None",
    ),
    (learner, {"regularizer": losses.CrossBatchLoss(NCA)}, "proxies=None"),
    (
        learner,
        {"encoder": with_histogram(False), "regularizer": CROSS_BATCH},
        "return_histogram=True",
    ),
    (
        learner,
        {"log_regularizer_share": True},
        "needs a regularizer, and TensorFlow",
    ),
    (compiled, ("mse",), "pair loss or a proxy loss"),
    (compiled, (CROSS_BATCH,), r"MetricLearner\(regularizer=CrossBatchLoss"),
    (compiled, (NCA,), "ProxyNCALoss needs proxies"),
    (
        compiled,
        {"loss": NCA, "proxies": PROXIES, "memory": layers.EmbeddingMemory(4)},
        "need a pair loss",
    ),
    (
        compiled,
        {"loss": ListWise(), "proxies": PROXIES},
        "ListWise cannot use `proxies`",
    ),
    (trained, (23,), "23"),
    *(
        (functools.partial(build, network), options, message)
        for network, options, message in (
            (feature_map, {"embedding_size": 0}, "embedding_size=0"),
            (feature_map, {"normalization": "max"}, "normalization='max'"),
            (feature_map, {"prefix_tokens": 1}, "need tokens"),
            (feature_map, TWO_HISTOGRAMS, "Only one of"),
            (feature_map, {"lora_rank": 0}, "`lora_rank` must be"),
            (feature_map, {"lora_rank": 99}, "lora_rank=99.*Lower it"),
            (pooled, {}, "without its top.*backbone.get_layer"),
            (keras.Sequential, {}, "must be a built Keras model"),
            (patches, {"prefix": "cut"}, "prefix='cut'"),
            (patches, {"prefix_tokens": -1}, "prefix_tokens=-1"),
            (patches, {"prefix_tokens": 7}, "prefix_tokens=7, tokens of sh"),
            (patches, {"grid_shape": (0, 2)}, "rows=0"),
            (masked_patches, {"grid_shape": (2, 3)}, "count: it has no mask"),
            (patches, {"prefix": "concatenate"}, "at least 1 with"),
            (
                patches,
                {"prefix": "keep", "grid_shape": (2, 3)},
                "must be None with",
            ),
        )
    ),
    (initialize, (pictures(), None), "layers named"),
    (initialize, (pictures(), 7), "7 dimensions, 6 channels, 40 images"),
    (initialize, (pictures() * np.nan,), "must be finite"),
    (initialize, ((pictures(), np.arange(40)),), "num_classes=40 for 40"),
    (proxy_optimizer, ({"prototypes": 1e-2},), "'prototypes'.*encoder/kernel"),
    (proxy_optimizer, ({"roxies": 1e-2},), "'roxies'"),
    (
        proxy_optimizer,
        ({"proxies": 1e-2, "class_proxies/proxies": 1e-3},),
        "class_proxies/proxies' twice",
    ),
    (proxy_optimizer, ({},), "at least one"),
    (
        proxy_optimizer,
        ({"proxies": 1e-2}, keras.Sequential([layers.ClassProxies(3)])),
        "build it first",
    ),
    *(
        (
            proxy_optimizer,
            {"rates": {"proxies": 1e-2}, "optimizer": optimizer},
            "Received: optimizer=",
        )
        for optimizer in ("adam", SCALED)
    ),
    *(
        (models.truncate_encoder, (encoder(), size), f"truncate_to={size}")
        for size in (0, 9)
    ),
    (trained, {"sample_weight": np.ones(24)}, "no sample weights"),
    (chunked, (5,), "multiple of `batch_chunks=5`"),
    (
        chunked,
        {"chunks": 2, "activity_regularizer": "l2"},
        "activity regularizers.*'active'",
    ),
    *(
        (fitted, (NAN, parts, how), "NaN|nan")
        for parts, how in (
            ("", "fit"),
            ("memory", "train_on_batch"),
            ("proxies", "evaluate"),
        )
    ),
    *(
        (fitted, (labels, "proxies"), f"num_classes=4.*Received: .*{received}")
        for labels, received in (
            (CODES + 1, "4"),
            (NAMES, "'ant'"),
            (CODES * 2**32 + 1, "4294967297"),
        )
    ),
    # A code of its own for each batch would join classes in a memory.
    *(
        (fitted, (labels, "", how), "codes|unique")
        for labels in (CODES * 2**32 + 1, NAMES)
        for how in ("train_on_batch", "test_on_batch")
    ),
    (fitted, (CODES + 1, "proxies", "train_on_batch"), "num_classes=4"),
    *(
        (fitted, {"data": tensors(data, make), "parts": parts}, message)
        for data, make, parts, message in (
            ((IMAGES, CODES + 1), "from_tensors", "proxies", r"\[0, "),
            ((IMAGES, NAMES), "from_tensors", "", "Received: .*string"),
            (
                {"image": IMAGES, "label": CODES},
                "from_tensors",
                "",
                r"\(images, labels\).*keys \['image', 'label'\]",
            ),
            ((IMAGES, CODES), "from_tensor_slices", "", r"batch\(64\)"),
        )
    ),
    (fitted, {"data": lambda: {"image": IMAGES}}, "no labels"),
    (embedding_of, ({"pooled": np.ones((2, 8))},), r"keys \['pooled'\]"),
    (embedding_of, (np.ones((2, 3, 8)),), r"\(2, 3, 8\)"),
]
if keras.backend.backend() == "torch":
    ROWS += [(learner, {"batch_chunks": 2}, "needs TensorFlow or JAX")]
