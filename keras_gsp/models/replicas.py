"""One loss over the global batch, however many replicas hold it."""

from typing import Any

import keras

from keras_gsp.ops.tensor import Tensor


def gather_replicas(tensor: Tensor) -> Any:
    """Returns the tensor of every replica, joined along the first axis.

    A loss on pairs is a function of the whole batch: replicas that look at
    their own part minimise another objective. On JAX the global batch is what
    a program sees anyway, and nothing is done.

    Args:
        tensor: (batch of this replica, ...).

    Returns:
        (global batch, ...).
    """
    if keras.backend.backend() != "tensorflow":
        return tensor
    import tensorflow as tf

    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return tensor
    context = tf.distribute.get_replica_context()
    if context is None:
        # Keras traces the loss once outside the replicas, for its shape.
        return tensor
    # The identity turns a per-replica input into a tensor of this replica.
    return context.all_gather(tf.identity(tensor), axis=0)


def share_of_replica(loss: Any) -> Any:
    """Divides a global loss by the replicas, whose gradients are summed."""
    if keras.backend.backend() != "tensorflow":
        return loss
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return loss if replicas == 1 else loss / replicas
