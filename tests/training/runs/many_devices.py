"""The same steps on one device and on several; see test_distribution.py."""

import functools
import json
import pathlib
import sys

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp._processes import as_numpy
from training.runs.distribution import Distribution

NUM_CLASSES = 4


def proxies():
    return gsp.layers.ClassProxies(
        NUM_CLASSES, proxies_per_class=2, name="class_proxies"
    )


def zero_shot():
    embeddings = gsp.layers.ClassEmbeddings(
        NUM_CLASSES, 5, name="class_embeddings"
    )
    loss = gsp.losses.ZeroShotLoss()
    own = {"regularizer": loss, "regularizer_weight": 0.5}
    return own | {"class_embeddings": embeddings}


def cross_batch():
    loss = gsp.losses.CrossBatchLoss(gsp.losses.ContrastiveLoss())
    return {"regularizer": loss, "regularizer_weight": 0.5}


def memory():
    return {"memory": gsp.layers.EmbeddingMemory(24, warmup_steps=1)}


def anchored_proxies():
    weights = {"anchor_weight": 0.5, "in_batch_weight": 0.1}
    return {"proxies": proxies(), "batch_chunks": 2, **weights}


PAIRS, ANCHORS = gsp.losses.MultiSimilarityLoss, gsp.losses.ProxyAnchorLoss
# Loss, and what else a learner gets.
CASES = {
    "proxy_anchor": (ANCHORS, lambda: {"proxies": proxies()}),
    "zsr": (PAIRS, zero_shot),
    "xml": (PAIRS, cross_batch),
    "xbm": (gsp.losses.ContrastiveLoss, memory),
    "ccp in chunks": (PAIRS, anchored_proxies),
}
SPLIT_BY_CLASS = ("proxy_anchor", "zsr")


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


class Losses(keras.callbacks.Callback):
    """Keeps the mean loss of the steps so far, after each."""

    def __init__(self):
        super().__init__()
        self.means = []

    def on_train_batch_end(self, batch, logs=None):
        self.means.append(float(logs["loss"]))


@functools.cache
def mirrored():
    """One for each process: two would mix their reductions."""
    import tensorflow as tf

    devices = [one.name for one in tf.config.list_logical_devices("CPU")]
    return tf.distribute.MirroredStrategy(devices)


def steps(case, kind, num_steps=3):
    """Losses, weights by path, and the shares that a device holds."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    images = random.normal(size=(num_steps, 16, 6)).astype("float32")
    labels = np.tile(np.repeat(np.arange(NUM_CLASSES), 4), (num_steps, 1))
    is_mirrored = kind == "mirrored"
    with mirrored().scope() if is_mirrored else Distribution(kind).scope():
        loss, make = CASES[case]
        parts = make()
        learner = gsp.models.MetricLearner(encoder(), seed=0, **parts)
        learner.compile(keras.optimizers.SGD(0.02, momentum=0.9), loss=loss())
        if "anchor_weight" in parts:
            trained = learner.encoder.trainable_variables
            learner.anchored.start_problem(
                [keras.ops.convert_to_numpy(v) + 0.3 for v in trained]
            )
        losses = Losses()
        # `train_on_batch` does not cut the batch.
        learner.fit(
            images.reshape(-1, 6),
            labels.reshape(-1),
            batch_size=labels.shape[1],
            shuffle=False,
            callbacks=[losses],
            verbose=0,
        )
        weights = {
            f"{number}/{variable.path}": as_numpy(variable)
            for number, variable in enumerate(learner.variables)
            if variable.dtype == "float32"
        }
        return losses.means, weights, shares(learner)


def shares(learner):
    """Size of a device's piece over the whole, by path, slots included."""
    if keras.backend.backend() != "jax":
        return {}
    variables = [*learner.variables, *learner.optimizer.variables]
    return {
        variable.path: variable.value.addressable_shards[0].data.size
        / variable.value.size
        for variable in variables
        if variable.value.size
    }


def relative_gap(found, expected):
    """The largest difference, over the largest number where that is above 1.

    Proxies grow to a length of three: a rounding of theirs is so much larger.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    with np.errstate(invalid="ignore"):  # A best score begins at -inf.
        gaps = np.where(found == expected, 0.0, np.abs(found - expected))
    sizes = np.abs(expected)
    largest = sizes.max(initial=1.0, where=np.isfinite(sizes))
    return float(gaps.max(initial=0.0) / largest)


def difference(found, expected):
    """The largest of the losses, and of all weights, both relative."""
    (means, weights, held), (one_means, one_weights, _) = found, expected
    names = one_weights.keys()
    gaps = [relative_gap(weights[name], one_weights[name]) for name in names]
    moved = max(one_means) - min(one_means)
    found = {"loss": relative_gap(means, one_means), "weights": max(gaps)}
    return found | {"moved": moved, "shares": held}


def on_jax():
    for case in CASES:
        one = steps(case, "none")
        yield f"data/{case}", difference(steps(case, "data"), one)
        if case in SPLIT_BY_CLASS:
            yield f"model/{case}", difference(steps(case, "model"), one)


def on_tensorflow():
    """Two processors."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, halves)
    for case in CASES:
        found = steps(case, "mirrored"), steps(case, "none")
        yield f"mirrored/{case}", difference(*found)


def main(path):
    is_jax = keras.backend.backend() == "jax"
    path.write_text(json.dumps(dict(on_jax() if is_jax else on_tensorflow())))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
