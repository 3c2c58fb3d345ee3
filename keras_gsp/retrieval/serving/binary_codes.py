"""A short list by binary codes, in TensorFlow's own operations."""

import numpy as np
import tensorflow as tf

from keras_gsp.ops.tensor import Tensor

WORD = 64
# Candidates to compare exactly: for each neighbor, and at least.
PER_NEIGHBOR, LEAST = 10, 100


class BinaryCodes:
    """Signs of rotated embeddings, packed into words of 64 bits.

    The rows are centered and turned by one random rotation, so that every bit
    carries about the same. The number of bits in which two codes differ grows
    with the angle between the embeddings as seen from the center.
    """

    def __init__(self, rows: np.ndarray) -> None:
        size = rows.shape[1]
        self.num_bits = WORD * -(-size // WORD)
        noise = np.random.default_rng(0).normal(size=[self.num_bits] * 2)
        rotation = np.linalg.qr(noise)[0][:size].astype("float32")
        center = rows.mean(axis=0)
        words = np.empty((len(rows), self.num_bits // WORD), "int64")
        for start in range(0, len(rows), 2**16):
            some = slice(start, start + 2**16)
            bits = (rows[some] - center) @ rotation > 0
            words[some] = np.packbits(bits, axis=1).view("int64")
        with tf.device("/CPU:0"):
            self.variables = {
                "codes": tf.Variable(words, trainable=False),
                "rotation": tf.Variable(rotation, trainable=False),
                "center": tf.Variable(center, trainable=False),
            }

    def shortlist(self, queries: Tensor, num_neighbors: int) -> Tensor:
        """Returns the items whose codes are nearest, (batch, candidates).

        Ten times as many as the neighbors wanted, at least 100.
        """
        codes = self.variables["codes"]
        count = min(max(PER_NEIGHBOR * num_neighbors, LEAST), codes.shape[0])
        rotation = self.variables["rotation"]
        turned = (queries - self.variables["center"]) @ rotation
        # As `numpy.packbits` does.
        bits = tf.reshape(turned > 0, (-1, codes.shape[1], 8, 8))
        values = [128, 64, 32, 16, 8, 4, 2, 1] * tf.cast(bits, "int32")
        packed = tf.cast(tf.reduce_sum(values, axis=-1), "uint8")

        def nearest(words):
            differing = tf.bitwise.bitwise_xor(codes, words)
            ones = tf.raw_ops.PopulationCount(x=differing)
            total = tf.reduce_sum(tf.cast(ones, "int32"), axis=1)
            return tf.math.top_k(-total, count).indices

        words = tf.bitcast(packed, "int64")
        return tf.map_fn(nearest, words, fn_output_signature="int32")
