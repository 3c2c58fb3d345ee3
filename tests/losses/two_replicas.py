"""Every loss on one device and on two; see test_every_loss.py."""

import json
import pathlib
import sys

import keras
import tensorflow as tf

import keras_gsp as gsp
from tests.losses.test_every_loss import LABELS, LOSSES, images, proxies


def two_logical_devices():
    cpu = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, halves)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def value(name, strategy, count):
    """The shares of all replicas, added up."""
    with strategy.scope():
        keras.utils.set_random_seed(0)
        learner = gsp.models.MetricLearner(
            keras.Sequential([keras.Input((6,)), keras.layers.Dense(5)]),
            proxies=proxies(),
        )
        learner.compile("sgd", loss=LOSSES[name]())
    embeddings = images()[:, :5]
    batches = [
        (tf.constant(LABELS[i::count]), tf.constant(embeddings[i::count]))
        for i in range(count)
    ]
    batch = strategy.experimental_distribute_values_from_function(
        lambda context: batches[context.replica_id_in_sync_group]
    )

    @tf.function
    def step(labels, outputs):
        return learner.compute_loss(y=labels, y_pred=outputs)

    shares = strategy.run(step, args=batch)
    return float(strategy.reduce("SUM", shares, axis=None))


if __name__ == "__main__":
    both = two_logical_devices()
    one = tf.distribute.get_strategy()
    pathlib.Path(sys.argv[1]).write_text(
        json.dumps(
            {
                name: (value(name, one, 1), value(name, both, 2))
                for name in LOSSES
            }
        )
    )
