"""The same steps on one device and on several; see test_distribution.py."""

import json
import pathlib
import sys

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp._processes import as_numpy
from training.runs.distribution import Distribution

NUM_CLASSES = 4
PAIRS, ANCHORS = gsp.losses.MultiSimilarityLoss, gsp.losses.ProxyAnchorLoss


def proxies():
    return gsp.layers.ClassProxies(
        NUM_CLASSES, proxies_per_class=2, name="class_proxies"
    )


def zero_shot():
    embeddings = gsp.layers.ClassEmbeddings(
        NUM_CLASSES, 5, name="class_embeddings"
    )
    loss = gsp.losses.ZeroShotLoss()
    return {"regularizer": loss, "class_embeddings": embeddings}


def anchored_proxies():
    weights = {"anchor_weight": 0.5, "in_batch_weight": 0.1}
    return {"proxies": proxies(), "batch_chunks": 2, **weights}


# Loss, what else a learner gets, and whether it is split by class.
CASES = {
    "proxy_anchor": (ANCHORS, lambda: {"proxies": proxies()}, True),
    "zsr": (PAIRS, zero_shot, True),
    "xbm": (PAIRS, lambda: {"memory": gsp.layers.EmbeddingMemory(24)}, False),
    "ccp in chunks": (PAIRS, anchored_proxies, False),
}


def encoder():
    """On JAX with batch normalization, whose statistics are the batch's."""
    inputs = keras.Input((6,))
    features = keras.layers.Dense(8, name="features")(inputs)
    # A replica of TensorFlow normalizes its own part, as the guide says.
    if keras.backend.backend() == "jax":
        features = keras.layers.BatchNormalization()(features)
    embedding = keras.layers.Dense(5, name="projection")(features)
    histogram = keras.layers.Dense(4, "softmax", name="histogram")(features)
    outputs = {"embedding": embedding, "histogram": histogram}
    return keras.Model(inputs, outputs | {"pooled": features})


def mirrored():
    """A strategy for two processors, before TensorFlow is used."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, halves)
    devices = [one.name for one in tf.config.list_logical_devices("CPU")]
    return tf.distribute.MirroredStrategy(devices)


def steps(case, scope):
    """Losses of three steps, then the weights, and shares of a device."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    images = np.random.default_rng(0).normal(size=(16, 6)).astype("float32")
    labels = np.repeat(np.arange(NUM_CLASSES), 4)
    with scope():
        loss, make, _ = CASES[case]
        parts = make()
        learner = gsp.models.MetricLearner(encoder(), seed=0, **parts)
        learner.compile(keras.optimizers.SGD(0.02, momentum=0.9), loss=loss())
        if "anchor_weight" in parts:
            trained = learner.encoder.trainable_variables
            learner.anchored.start_problem(
                [keras.ops.convert_to_numpy(v) + 0.3 for v in trained]
            )
        options = {"batch_size": 16, "shuffle": False, "verbose": 0}
        done = learner.fit(images, labels, epochs=3, **options)
        weights = [v for v in learner.variables if v.dtype == "float32"]
        numbers = [np.array(done.history["loss"]), *map(as_numpy, weights)]
        if keras.backend.backend() != "jax":
            return numbers, []
        # A device's piece over the whole, slots of the optimizer included.
        values = [*learner.variables, *learner.optimizer.variables]
        pieces = [(v.value.addressable_shards[0].data, v.value) for v in values]
        shares = [part.size / whole.size for part, whole in pieces]
        return numbers, [share for share in shares if share < 1]


def gap(found, expected):
    """The largest difference, over the largest number where that is above 1.

    Proxies grow to a length of three: a rounding of theirs is so much larger.
    """
    with np.errstate(invalid="ignore"):  # A best score begins at -inf.
        gaps = np.where(found == expected, 0.0, np.abs(found - expected))
    sizes = np.abs(expected)
    largest = sizes.max(initial=1.0, where=np.isfinite(sizes))
    return float(gaps.max(initial=0.0) / largest)


def compared():
    kinds = {kind: Distribution(kind).scope for kind in ("data", "model")}
    if keras.backend.backend() != "jax":
        kinds = {"mirrored": mirrored().scope}
    for case, (_, _, is_split) in CASES.items():
        expected, _ = steps(case, Distribution().scope)
        for kind, scope in kinds.items():
            if kind == "model" and not is_split:
                continue
            numbers, shares = steps(case, scope)
            gaps = [gap(*x) for x in zip(numbers, expected, strict=True)]
            moved = float(np.ptp(expected[0]))
            facts = {"gap": max(gaps), "moved": moved, "shares": shares}
            yield f"{kind}/{case}", facts


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(json.dumps(dict(compared())))
