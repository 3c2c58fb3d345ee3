"""Computes every loss on one device and on two, for test_every_loss.py."""

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


def values(strategy, count):
    """The shares of all replicas, added up, of every loss."""
    learners = {}
    with strategy.scope():
        for name, loss in LOSSES.items():
            keras.utils.set_random_seed(0)
            learners[name] = gsp.models.MetricLearner(
                keras.Sequential([keras.Input((6,)), keras.layers.Dense(5)]),
                proxies=proxies(),
            )
            learners[name].compile("sgd", loss=loss)
    embeddings = images()[:, :5]
    batches = [
        (tf.constant(LABELS[i::count]), tf.constant(embeddings[i::count]))
        for i in range(count)
    ]
    batch = strategy.experimental_distribute_values_from_function(
        lambda context: batches[context.replica_id_in_sync_group]
    )

    @tf.function  # One for all losses: it is tracing that takes time.
    def step(labels, outputs):
        return {
            name: learner.compute_loss(y=labels, y_pred=outputs)
            for name, learner in learners.items()
        }

    shares = strategy.run(step, args=batch)
    return {
        name: float(strategy.reduce("SUM", share, axis=None))
        for name, share in shares.items()
    }


if __name__ == "__main__":
    both = values(two_logical_devices(), 2)
    one = values(tf.distribute.get_strategy(), 1)
    pathlib.Path(sys.argv[1]).write_text(
        json.dumps({name: (one[name], both[name]) for name in LOSSES})
    )
