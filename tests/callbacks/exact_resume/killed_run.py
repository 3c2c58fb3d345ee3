"""A training run with everything on that kills itself where it is told to.

Run by test_exact_resume_after_kill.py in a process of its own, again and
again with the same folder, until it writes the final state.
"""

import argparse
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import keras_gsp as gsp
from tests.endurance.killed_run import kill_in_write, kill_now

CLASSES, PER_CLASS, STEPS, EPOCHS = 6, 8, 4, 9
RANDOM = np.random.default_rng(0)
LABELS = np.repeat(np.arange(CLASSES), PER_CLASS)
IMAGES = (
    RANDOM.normal(size=(CLASSES, 1, 8, 8, 3))
    + RANDOM.normal(size=(CLASSES, PER_CLASS, 8, 8, 3))
).reshape(-1, 8, 8, 3)


class KillAtStep(keras.callbacks.Callback):
    """Kills the process in the given step, counted from the first one."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch * STEPS + batch == self.step:
            kill_now()


def build_learner():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 3))
    features = keras.layers.Conv2D(8, 3, activation="relu")(inputs)
    features = keras.layers.BatchNormalization()(features)
    features = keras.layers.Dropout(0.2, seed=1)(features)
    encoder = gsp.models.build_encoder(
        keras.Model(inputs, features),
        embedding_size=6,
        pooling=gsp.layers.GeneralizedSumPooling(4, return_histogram=True),
    )
    learner = gsp.models.MetricLearner(
        encoder,
        proxies=gsp.layers.ClassProxies(CLASSES, proxies_per_class=2),
        memory=gsp.layers.EmbeddingMemory(20, warmup_steps=3),
        regularizer=gsp.losses.ZeroShotLoss(),
        class_embeddings=gsp.layers.ClassEmbeddings(CLASSES, 5),
        anchor_weight=0.01,
        in_batch_weight=0.1,
        seed=2,
    )
    optimizer = gsp.models.proxy_optimizer(
        learner, keras.optimizers.AdamW(3e-3), {"proxies": 3e-2}
    )
    learner.compile(optimizer, loss=gsp.losses.ContrastiveLoss())
    return learner


def batches(first_step):
    indices = gsp.data.class_balanced_batches(
        LABELS,
        classes_per_batch=4,
        samples_per_class=2,
        seed=3,
        first_step=first_step,
    )
    return indices.map(
        lambda rows: (
            tf.gather(IMAGES.astype("float32"), rows),
            tf.gather(LABELS, rows),
        )
    )


def callbacks(arguments, folder):
    def pool(classes, problem):
        if problem == arguments.kill_in_pool:
            kill_now()
        return IMAGES, LABELS

    watched = [
        gsp.callbacks.RetrievalEvaluation((IMAGES, LABELS)),
        gsp.callbacks.ChanceConstrainedProgramming(
            pool,
            pool_size=5,
            refresh_epochs=3,
            warmup_epochs=1,
        ),
        keras.callbacks.ReduceLROnPlateau(
            "loss", mode="min", patience=2, min_delta=0.01
        ),
    ]
    resume = gsp.callbacks.ExactResume(
        folder, callbacks=watched, settings={"seed": 3}
    )
    return [*watched, KillAtStep(arguments.kill_at_step), resume]


def run(arguments):
    folder = Path(arguments.folder)
    if arguments.kill_in_write:
        kill_in_write(arguments.kill_in_write)
    learner = build_learner()
    used = callbacks(arguments, folder / "checkpoint")
    first_step = used[-1].restore(learner)
    learner.fit(
        batches(first_step),
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        callbacks=used,
        verbose=0,
    )
    variables = [*learner.variables, *learner.optimizer.variables]
    np.savez(
        folder / "final.npz",
        problem=learner.anchored.problem,
        **{
            f"{position} {variable.path}": keras.ops.convert_to_numpy(variable)
            for position, variable in enumerate(variables)
        },
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--kill-at-step", type=int)
    parser.add_argument("--kill-in-write", type=int)
    parser.add_argument("--kill-in-pool", type=int)
    run(parser.parse_args())
