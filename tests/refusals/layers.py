"""What layers refuse."""

import numpy as np

from keras_gsp import layers
from tests.refusals._rows import every_argument, out_of_range, rows

OTHERS = {
    "ClassEmbeddings": {"num_classes": 5, "embedding_size": 3},
    "ClassProxies": {"num_classes": 4},
    "EmbeddingMemory": {"capacity": 6},
    "Whitening": {"size": 3},
}


def mixed(samples=60, size=6, varying=6):
    """Rows of eight classes that vary in the first directions only."""
    rows = np.random.default_rng(0).normal(size=(samples, size))
    return rows * (np.arange(size) < varying)


def whiten(*arguments):
    layers.Whitening(3).adapt(*arguments)


def pool(kind, argument, shape, mask=None):
    return getattr(layers, kind)(argument)(np.ones(shape), mask=mask)


def of_another_rank(shape, other):
    layer = layers.CBAMPooling(2)
    layer.build(shape)
    layer(np.ones(other))


def of_shape(shape, mask=None, kind=layers.AverageMaxPooling):
    kind()(np.ones(shape), mask=None if mask is None else np.ones(mask, bool))


def of_values(shape):
    layer = layers.GeneralizedSumPooling(7)
    layer(np.ones((3, 20, 6)), values=np.ones(shape))


def remember(capacity, labels):
    memory = layers.EmbeddingMemory(capacity)
    memory(np.ones((4, 3)), np.array(labels), training=True)


CLASSES = np.arange(60) % 8
HALF = np.arange(24).reshape(2, 12) % 12 < 6
ROWS = [
    *every_argument(layers, OTHERS),
    *out_of_range(layers.CBAMPooling, {"kernel_size": [4]}),
    *out_of_range(layers.ClassProxies, {"num_classes": [2.5, True]}),
    *out_of_range(layers.NetVLADPooling, {"projection_size": [0]}),
    *out_of_range(
        layers.GeneralizedSumPooling,
        {"transport_ratio": [0.0], "inverse_temperature": [0], "power": [0.9]},
    ),
    *rows(
        layers.GeneralizedSumPooling,
        ({"transport_ratio": 1.0, "learn_ratio": True}, "below 1 with"),
        ({"power": 1.0, "learn_power": True}, "above 1 with learn_power=True"),
    ),
    (
        layers.EfficientProbingPooling,
        {"projection_size": 32, "use_value_projection": False},
        "`projection_size` must be None",
    ),
    *rows(
        whiten,
        ((mixed(6),), "`shrinkage` must be above 0.*5 degrees of freedom"),
        ((mixed(60, 2),), "at least `size` columns.*size=3"),
        ((mixed(varying=2),), "at least 3.*Received: 2"),
        ((mixed(), np.arange(60)), "num_classes=60 for 60 samples"),
    ),
    (layers.PrototypeHistogram(7), (np.ones((2, 4)),), r"shape \(2, 4\)"),
    (of_values, ((3, 19, 6),), "`values` must have the shape"),
    (
        layers.GeneralizedSumPooling(7).adapt,
        (np.ones((2, 3, 6)),),
        "Received: 6 features",
    ),
    (of_another_rank, ((2, 4, 3, 6), (2, 12, 6)), "the layer was built for"),
    *rows(
        pool,
        (("AttentionPooling", 4, (2, 12, 6)), "=4, channels=6"),
        (("WELDONPooling", 3, (2, 2, 6)), "Received: 2 features"),
        (("OptimalTransportPooling", 12, (2, 12, 6)), "12 features"),
        (("OptimalTransportPooling", 6, (2, 12, 6), HALF), "more features"),
    ),
    (layers.CroWPooling().build, ((None, 4, 4, None),), "channels of the fea"),
    *rows(
        of_shape,
        (((2, 6),), r"Received: shape \("),
        (((2, 4, 3, 6), (2, 4, 3)), "feature map takes none"),
        (((2, 12, 6), (1, 12)), r"mask of shape \(1, 12\)"),
        # It has a call of its own.
        (((2, 12, 6), (2, 1), layers.GeneralizedSumPooling), r"\(2, 1\)"),
    ),
    (layers.ClassProxies(3).build, ((None, None),), "embedding_size"),
    (layers.ClassEmbeddings(5, 3), (np.array([0, 5]),), r"\[0, 5\)"),
    *rows(
        remember,
        ((3, [0] * 4), "=3.*Received: batch=4"),
        ((6, [0] * 3), "`labels` and `embeddings`"),
    ),
    (layers.EmbeddingMemory(6).build, ((4, 2, 3),), "must have shape"),
]
