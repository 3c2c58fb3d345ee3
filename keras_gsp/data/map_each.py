"""Maps the rows of a batch one by one, where some of them may fail."""

from collections.abc import Callable
from typing import Any

from keras_gsp.data.untuned import untuned


def map_each(
    function: Callable[..., Any], rows: tuple[Any, ...], nothing: Any
) -> tuple[Any, Any]:
    """Maps each row in parallel; a row that raises does not stop the others.

    TensorFlow's decoders raise, which ends a whole batch. Inside a tf.data
    pipeline an element that raises can be dropped instead.

    Args:
        function: function of one element of each tensor in `rows`.
        rows: tensors with the same first axis, (batch, ...).
        nothing: what a row that raises gets, a tensor like the result of
            `function`.

    Returns:
        Results (batch, ...), and booleans (batch,): which rows did not raise.
    """
    import tensorflow as tf

    count = tf.shape(rows[0], out_type="int64")[0]
    elements = tf.data.Dataset.from_tensor_slices((tf.range(count), *rows))
    mapped = elements.map(
        lambda place, *row: (place, function(*row)),
        num_parallel_calls=tf.data.AUTOTUNE,
    ).ignore_errors(log_warning=False)
    # One more element keeps the pipeline from ending up empty.
    last = tf.data.Dataset.from_tensors((count, nothing))
    mapped = untuned(mapped.concatenate(last).batch(count + 1))
    places, values = mapped.get_single_element()
    places, values = places[:-1], values[:-1]
    is_mapped = tf.scatter_nd(
        places[:, None], tf.ones_like(places), count[None]
    )

    def spread():
        shape = tf.concat([count[None], tf.shape(values, "int64")[1:]], 0)
        empty = tf.broadcast_to(nothing, shape)
        return tf.tensor_scatter_nd_update(empty, places[:, None], values)

    values = tf.cond(tf.size(places, "int64") == count, lambda: values, spread)
    return values, is_mapped > 0
