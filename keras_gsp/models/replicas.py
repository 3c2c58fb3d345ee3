"""The global batch and the global loss under `tf.distribute`.

On JAX a program sees the global batch already: nothing is done there.
"""

import keras

from keras_gsp._tensor import Tensor


def gather_replicas(tensor: Tensor) -> Tensor:
    """Joins the replicas' parts of a tensor to (global batch, ...)."""
    if num_replicas() == 1:
        return tensor
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None:
        # Keras traces the loss once outside the replicas, for its shape.
        return tensor
    # The identity turns a per-replica input into a tensor of this replica.
    return context.all_gather(tf.identity(tensor), axis=0)


def share_of_replica(loss: Tensor) -> Tensor:
    """Divides the global loss by the replicas, whose gradients are summed."""
    return loss / num_replicas()


def num_replicas() -> int:
    """Replicas of `tf.distribute`; 1 without a strategy and on JAX."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync
