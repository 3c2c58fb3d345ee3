"""Training with several processes of `keras.distribution` on JAX.

All processes hold the weights; rows of proxies may be split between them. The
first process writes files. All of them must make the same calls in the same
order. With one process the functions here do nothing special.
"""

import pickle
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

import keras
import numpy as np
from keras import ops, tree

Result = TypeVar("Result")

# Compiled once for each encoder.
_FORWARD: WeakKeyDictionary = WeakKeyDictionary()


def num_processes() -> int:
    """Number of processes that train together; 1 without a distribution."""
    if keras.backend.backend() != "jax":
        return 1
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.num_processes


def is_first_process() -> bool:
    """Whether this is the process that writes files."""
    if num_processes() == 1:
        return True
    import jax

    return jax.process_index() == 0


def from_first_process(compute: Callable[[], Result]) -> Result:
    """Computes in the first process; all return the result or raise its error.

    `compute` has no arguments; its result can be pickled.
    """
    if num_processes() == 1:
        return compute()
    answer: Any = None
    if is_first_process():
        try:
            answer = compute(), None
        except Exception as error:  # noqa: BLE001, raised in every process
            answer = None, error
    result, failure = _broadcast(answer)
    if failure is not None:
        raise failure
    return result


def as_numpy(tensor: Any) -> np.ndarray:
    """Returns a whole tensor or variable, gathered from all processes."""
    value = getattr(tensor, "value", tensor)
    is_in_parts = num_processes() > 1 and not (
        value.is_fully_addressable or value.is_fully_replicated
    )
    if not is_in_parts:
        return np.asarray(ops.convert_to_numpy(tensor))
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


def predictor(encoder: keras.Model) -> Callable[[Any], Any]:
    """Returns `encoder.predict_on_batch`, also for one of several processes.

    Each of these embeds the whole batch, with a copy of the current weights.
    """
    if num_processes() == 1:
        return encoder.predict_on_batch
    import jax

    device = jax.local_devices()[0]
    kinds = encoder.trainable_variables, encoder.non_trainable_variables
    # By way of the host: an array on devices of several processes does not
    # tell which part is on those of this process.
    arrays = [[as_numpy(variable) for variable in kind] for kind in kinds]
    weights, forward = jax.device_put(arrays, device), _forward(encoder)

    def predict(images):
        distribution = keras.distribution.distribution()
        # Layers would ask the distribution where its devices are.
        keras.distribution.set_distribution(None)
        try:
            images = jax.device_put(np.asarray(images), device)
            return tree.map_structure(np.asarray, forward(*weights, images))
        finally:
            keras.distribution.set_distribution(distribution)

    return predict


def _forward(encoder):
    import jax

    if encoder not in _FORWARD:
        known = ref(encoder)  # The cache must not keep the encoder alive.

        def call(*args):
            kept: Any = known()
            return kept.stateless_call(*args, training=False)[0]

        _FORWARD[encoder] = jax.jit(call)
    return _FORWARD[encoder]


def _broadcast(answer):
    """The pickled object of the first process."""
    from jax.experimental import multihost_utils

    content = np.frombuffer(pickle.dumps(answer), "uint8")
    length = multihost_utils.broadcast_one_to_all(np.int32(len(content)))
    # Few different lengths, because each is compiled.
    sent = np.resize(content, 1 << int(length).bit_length())
    return pickle.loads(multihost_utils.broadcast_one_to_all(sent).tobytes())
