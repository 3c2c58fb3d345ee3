"""Three anchored steps, again and again; see test_anchored_step.py."""

import argparse
import contextlib

import keras
import numpy as np

import keras_gsp as gsp


def two_logical_devices():
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, halves)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def train(strategy, batch_chunks):
    random = np.random.default_rng(0)
    with strategy.scope() if strategy else contextlib.nullcontext():
        inputs = keras.Input((6,))
        features = keras.layers.Dense(8, activation="tanh")(inputs)
        encoder = keras.Model(inputs, keras.layers.Dense(4)(features))
        learner = gsp.models.MetricLearner(
            encoder,
            proxies=gsp.layers.ClassProxies(4, proxies_per_class=2),
            anchor_weight=0.5,
            in_batch_weight=0.1,
            batch_chunks=batch_chunks,
        )
        learner.compile(
            keras.optimizers.SGD(0.1, momentum=0.9),
            loss=gsp.losses.MultiSimilarityLoss(),
        )
    weights = [random.normal(size=w.shape) for w in encoder.weights]
    encoder.set_weights(weights)
    shape = learner.proxies.proxies.shape
    learner.proxies.set_weights([random.normal(size=shape)])
    learner.anchored.start_problem([weight + 0.3 for weight in weights])
    images = random.normal(size=(24, 6)).astype("float32")
    labels = np.tile(np.arange(4), 6)
    history = learner.fit(
        images, labels, batch_size=8, shuffle=False, verbose=0
    )
    losses = np.array(history.history["loss"])
    return [*encoder.get_weights(), *learner.proxies.get_weights(), losses]


if __name__ == "__main__":
    # Every policy on one device and, if asked for, on two: policy/devices/i.
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--policies", nargs="+", default=["float32"])
    parser.add_argument("--two-devices", action="store_true")
    parser.add_argument("--batch-chunks", type=int, default=1)
    arguments = parser.parse_args()
    strategies = [None]
    if arguments.two_devices:
        strategies.append(two_logical_devices())
    updates = {}
    for policy in arguments.policies:
        keras.config.set_dtype_policy(policy)
        for devices, strategy in enumerate(strategies, start=1):
            for number, weight in enumerate(
                train(strategy, arguments.batch_chunks)
            ):
                updates[f"{policy}/{devices}/{number:02}"] = weight
    np.savez(arguments.path, **updates)
