r"""The gradient of a whole batch with the memory of one chunk of it.

A loss on pairs needs all embeddings at once, but not all activations. So the
encoder first embeds chunk after chunk and keeps no activations; the loss of
the whole batch gives the gradient of its embeddings; and chunk after chunk is
embedded once more, now to take that gradient on to the weights:

.. math:: \nabla_\theta L = \sum_c \Big(\frac{\partial E_c}{\partial\theta}
    \Big)^{\!\top} \frac{\partial L}{\partial E_c}

It is the gradient of the whole batch, for the price of a second forward
pass. Chunk c of n holds samples c, c + n, c + 2n, ..., so that the samples of
a class, which stand side by side, spread over the chunks.

Reference:
    Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory
    Limited Setup", RepL4NLP 2021.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops, tree

from keras_gsp.models.problems import moving_variables
from keras_gsp.ops.preconditions import require


def split_into_chunks(batch: Any, num_chunks: int) -> Any:
    """Cuts every tensor of a batch, with no copy of its samples' order.

    Args:
        batch: tensor (batch, ...), or a nest of them.
        num_chunks: divides the batch.

    Returns:
        (num_chunks, batch / num_chunks, ...), nested alike.

    Raises:
        ValueError: a batch that cannot be cut so.
    """

    def split(tensor):
        size = ops.shape(tensor)[0]
        # While shapes are inferred, JAX has symbols that cannot be compared.
        if isinstance(size, int) or ops.is_tensor(size):
            tensor = require(
                tensor,
                size % num_chunks == 0,
                f"The batch must be a multiple of `batch_chunks={num_chunks}`.",
                batch=size,
            )
        inner = tuple(ops.shape(tensor)[1:])
        tensor = ops.reshape(tensor, (-1, num_chunks, *inner))
        return ops.swapaxes(tensor, 0, 1)

    return tree.map_structure(split, batch)


def join_chunks(chunks: Any) -> Any:
    """Undoes `split_into_chunks`.

    Args:
        chunks: tensor (num_chunks, samples, ...), or a nest of them.

    Returns:
        (num_chunks * samples, ...), nested alike.
    """

    def join(tensor):
        inner = tuple(ops.shape(tensor)[2:])
        return ops.reshape(ops.swapaxes(tensor, 0, 1), (-1, *inner))

    return tree.map_structure(join, chunks)


def changing_variables(encoder: Any) -> list:
    """What a training call of an encoder changes by itself.

    Moving statistics of layers that are not frozen, and states of random
    generators.
    """
    weights = {id(weight) for weight in encoder.weights}
    return [
        *(v for v in moving_variables(encoder) if not v.trainable),
        *(v for v in encoder.variables if id(v) not in weights),
    ]


def encode_chunks_on_jax(encoder: Any, batch: Any, num_chunks: int) -> Any:
    """Embeds a batch; its gradient embeds each chunk once more.

    Args:
        encoder: built Keras model.
        batch: images, or a nest of tensors.
        num_chunks: divides the batch.

    Returns:
        The encoder's outputs for the whole batch.
    """
    import jax

    changing = changing_variables(encoder)
    places = {id(v): i for i, v in enumerate(changing)}
    trainable = [v.value for v in encoder.trainable_variables]
    fixed = [v.value for v in encoder.non_trainable_variables]

    def encode(values, chunk):
        others = [
            values[places[id(v)]] if id(v) in places else value
            for v, value in zip(
                encoder.non_trainable_variables, fixed, strict=True
            )
        ]
        outputs, others = encoder.stateless_call(
            trainable, others, chunk, training=True
        )
        after = {
            id(v): value
            for v, value in zip(
                encoder.non_trainable_variables, others, strict=True
            )
        }
        return [after[id(v)] for v in changing], outputs

    encode = jax.checkpoint(encode, prevent_cse=False)
    chunks = split_into_chunks(batch, num_chunks)
    values, outputs = jax.lax.scan(encode, [v.value for v in changing], chunks)
    for variable, value in zip(changing, values, strict=True):
        variable.assign(value)
    return join_chunks(outputs)


class ChunksOnTensorFlow:
    """A batch that is embedded twice, each time chunk by chunk.

    Loops of TensorFlow, not of Python: a graph would otherwise compute
    several chunks at once, or find the two passes equal and keep the
    activations of the first.

    Args:
        encoder: built Keras model.
        batch: images, or a nest of tensors.
        num_chunks: divides the batch.
    """

    def __init__(self, encoder: Any, batch: Any, num_chunks: int) -> None:
        self.encoder = encoder
        self.chunks = split_into_chunks(batch, num_chunks)
        self.num_chunks = num_chunks
        self.changing = changing_variables(encoder)
        self.before = [ops.copy(variable) for variable in self.changing]

    def outputs(self) -> Any:
        """Returns the encoder's outputs, to which no gradient flows."""
        import tensorflow as tf

        symbols = tree.map_structure(
            lambda chunk: keras.KerasTensor(chunk.shape[1:], chunk.dtype),
            self.chunks,
        )
        kinds = tree.map_structure(
            lambda output: output.dtype,
            self.encoder.compute_output_spec(symbols, training=True),
        )
        return join_chunks(
            tf.map_fn(
                lambda chunk: self.encoder(chunk, training=True),
                self.chunks,
                fn_output_signature=kinds,
                parallel_iterations=1,
            )
        )

    def gradients(
        self, pulled: Sequence[tuple[Any, Sequence[Any]]]
    ) -> list[list[Any]]:
        """Takes gradients of the outputs on to variables, in a second pass.

        Args:
            pulled: pairs of a gradient of the outputs, nested as they are,
                and the variables to take it to.

        Returns:
            For each pair the gradients, one a variable.
        """
        import tensorflow as tf

        # The second pass sees what the first saw: moving statistics move
        # once, and dropout drops the same.
        for variable, value in zip(self.changing, self.before, strict=True):
            variable.assign(value)
        targets = [list(variables) for _, variables in pulled]
        cut = [
            split_into_chunks(tree.flatten(gradient), self.num_chunks)
            for gradient, _ in pulled
        ]

        def add(sums, chunk_and_gradients):
            chunk, gradients = chunk_and_gradients
            with tf.GradientTape(persistent=len(pulled) > 1) as tape:
                outputs = tree.flatten(self.encoder(chunk, training=True))
            return [
                [
                    total + tf.convert_to_tensor(gradient)
                    for total, gradient in zip(
                        totals,
                        tape.gradient(
                            outputs,
                            variables,
                            output_gradients=one,
                            unconnected_gradients="zero",
                        ),
                        strict=True,
                    )
                ]
                for totals, variables, one in zip(
                    sums, targets, gradients, strict=True
                )
            ]

        return tf.foldl(
            add,
            (self.chunks, cut),
            [[ops.zeros_like(v) for v in variables] for variables in targets],
            parallel_iterations=1,
        )
