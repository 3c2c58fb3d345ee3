r"""The gradient of a whole batch with the memory of one chunk of it.

The encoder first embeds chunk after chunk and keeps no activations; the loss
of the whole batch gives the gradient of the embeddings E; then each chunk c is
embedded again, to propagate that gradient to the weights:

.. math:: \nabla_\theta L = \sum_c \Big(\frac{\partial E_c}{\partial\theta}
    \Big)^{\!\top} \frac{\partial L}{\partial E_c}

Reference:
    Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory
    Limited Setup", RepL4NLP 2021.
"""

from typing import Any

import keras
from keras import ops, tree

from keras_gsp._checks import require


def split_into_chunks(batch: Any, num_chunks: int) -> Any:
    """Splits a nest of tensors into (num_chunks, batch / num_chunks, ...).

    Chunk c takes samples c, c + n, ...: classes spread over the chunks.
    """

    def split(tensor):
        size = ops.shape(tensor)[0]
        # JAX infers shapes with symbols that cannot be compared.
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
    """Inverts `split_into_chunks`."""

    def join(tensor):
        inner = tuple(ops.shape(tensor)[2:])
        return ops.reshape(ops.swapaxes(tensor, 0, 1), (-1, *inner))

    return tree.map_structure(join, chunks)


def changing_variables(encoder: keras.Model) -> list:
    """Returns the moving statistics and generators that training assigns."""
    weights = {id(weight) for weight in encoder.weights}
    changing = {
        id(weight): weight
        for layer in _leaves(encoder)
        if layer.trainable
        for weight in layer.non_trainable_weights
    }
    return [
        *changing.values(),
        *(v for v in encoder.variables if id(v) not in weights),
    ]


def encode_chunks_on_jax(
    encoder: keras.Model, batch: Any, num_chunks: int
) -> Any:
    """Embeds a batch; its gradient embeds each chunk once more."""
    import jax

    changing = changing_variables(encoder)
    numbers = {id(v): i for i, v in enumerate(encoder.non_trainable_variables)}
    positions = [numbers[id(v)] for v in changing]
    trainable = [v.value for v in encoder.trainable_variables]
    fixed = [v.value for v in encoder.non_trainable_variables]

    def encode(values, chunk):
        others = list(fixed)
        for position, value in zip(positions, values, strict=True):
            others[position] = value
        outputs, others = encoder.stateless_call(
            trainable, others, chunk, training=True
        )
        return [others[position] for position in positions], outputs

    encode = jax.checkpoint(encode, prevent_cse=False)
    chunks = split_into_chunks(batch, num_chunks)
    values, outputs = jax.lax.scan(encode, [v.value for v in changing], chunks)
    for variable, value in zip(changing, values, strict=True):
        variable.assign(value)
    return join_chunks(outputs)


class ChunksOnTensorFlow:
    """A batch that is embedded twice, each time chunk by chunk.

    The loops are TensorFlow's: a graph would compute several iterations of a
    Python loop at once, or merge the two passes and keep the activations.
    """

    def __init__(
        self, encoder: keras.Model, batch: Any, num_chunks: int
    ) -> None:
        self.encoder = encoder
        self.chunks = split_into_chunks(batch, num_chunks)
        self.num_chunks = num_chunks
        self.changing = changing_variables(encoder)
        self.before = [ops.copy(variable) for variable in self.changing]

    def outputs(self, tape: Any) -> Any:
        """Returns the outputs; the tape records what follows, not the pass."""
        import tensorflow as tf

        symbols = tree.map_structure(
            lambda chunk: keras.KerasTensor(chunk.shape[1:], chunk.dtype),
            self.chunks,
        )
        spec = self.encoder.compute_output_spec(symbols, training=True)
        dtypes = tree.map_structure(lambda output: output.dtype, spec)
        with tape.stop_recording():
            chunks = tf.map_fn(
                lambda chunk: self.encoder(chunk, training=True),
                self.chunks,
                fn_output_signature=dtypes,
                parallel_iterations=1,
            )
            outputs = join_chunks(chunks)
        tape.watch(outputs)
        return outputs

    def gradients(
        self, tape: Any, outputs: Any, targets: list[tuple[Any, list]]
    ) -> list[list]:
        """Returns the gradients of each pair of a loss and variables."""
        encoded = {id(v) for v in self.encoder.trainable_variables}
        inside = [[v for v in vs if id(v) in encoded] for _, vs in targets]
        of_outputs = [
            tape.gradient(loss, outputs, unconnected_gradients="zero")
            for loss, _ in targets
        ]
        through = self._second_pass(of_outputs, inside)
        return [
            add_gradients(tape.gradient(loss, vs), vs, *through_encoder)
            for (loss, vs), *through_encoder in zip(
                targets, through, inside, strict=True
            )
        ]

    def _second_pass(self, of_outputs, variables):
        """Propagates gradients of the outputs to lists of variables."""
        import tensorflow as tf

        # Moving statistics move once, and dropout drops the same again.
        for variable, value in zip(self.changing, self.before, strict=True):
            variable.assign(value)
        split = [
            split_into_chunks(tree.flatten(gradient), self.num_chunks)
            for gradient in of_outputs
        ]

        def add(sums, chunk_and_gradients):
            chunk, gradients = chunk_and_gradients
            with tf.GradientTape(persistent=len(split) > 1) as tape:
                outputs = tree.flatten(self.encoder(chunk, training=True))
            gradients_of_chunk = [
                tape.gradient(
                    outputs,
                    targets,
                    output_gradients=of_chunk,
                    unconnected_gradients="zero",
                )
                for targets, of_chunk in zip(variables, gradients, strict=True)
            ]
            # An embedding's gradient is sparse.
            gradients_of_chunk = tree.map_structure(
                tf.convert_to_tensor, gradients_of_chunk
            )
            return tree.map_structure(ops.add, sums, gradients_of_chunk)

        zeros = [[ops.zeros_like(v) for v in vs] for vs in variables]
        chunks = self.chunks, split
        return tf.foldl(add, chunks, zeros, parallel_iterations=1)


def add_gradients(
    gradients: list, variables: list, more: list, their_variables: list
) -> list:
    """Adds gradients of some variables to those of all; `None` counts as 0."""
    added = {
        id(v): gradient
        for v, gradient in zip(their_variables, more, strict=True)
    }
    return [
        added.get(id(variable), gradient)
        if gradient is None or id(variable) not in added
        else ops.convert_to_tensor(gradient) + added[id(variable)]
        for variable, gradient in zip(variables, gradients, strict=True)
    ]


def check_no_activity_losses(encoder: keras.Model, batch_chunks: int) -> None:
    """Raises `ValueError` for activity regularizers: the last chunk's loss."""
    layers = [encoder]
    while layers:
        layer = layers.pop()
        if getattr(layer, "activity_regularizer", None) is not None:
            raise ValueError(
                "`batch_chunks` must be 1 with activity regularizers. "
                f"Received: {batch_chunks}, and one in {layer.name!r}."
            )
        layers += getattr(layer, "layers", [])


def _leaves(layer):
    if not isinstance(layer, keras.Model):
        return [layer]
    return [leaf for part in layer.layers for leaf in _leaves(part)]
