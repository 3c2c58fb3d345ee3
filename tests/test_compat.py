"""Private names of Keras are where this package looks for them."""

import keras
import numpy as np

from keras_gsp import _compat as compat


class Holder(keras.layers.Layer):
    def __init__(self):
        super().__init__(name="holder")
        self.inner = keras.layers.Dense(2, name="inner")

    def call(self, inputs):
        return self.inner(inputs)


def small_model():
    part = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4, name="deep")], name="part"
    )
    return keras.Sequential([part, Holder()], name="whole")


def test_layers_are_found_in_models_and_in_layers():
    model = small_model()
    model.build((None, 3))
    names = {layer.name for layer in compat.layers_at_any_depth(model)}
    assert names >= {"whole", "part", "deep", "holder", "inner"}
    inside = compat.layers_at_any_depth(model, include_self=False)
    assert "whole" not in {layer.name for layer in inside}
    assert list(compat.layers_at_any_depth(np.mean)) == []


def test_a_symbolic_tensor_names_its_operation():
    layer = keras.layers.Dense(2)
    assert compat.operation_of(layer(keras.Input((3,)))) is layer


def test_a_mask_travels_with_its_tensor():
    tokens = keras.layers.Embedding(5, 2, mask_zero=True)(np.array([[1, 0]]))
    mask = keras.ops.convert_to_numpy(compat.mask_of(tokens))
    np.testing.assert_array_equal(mask, [[True, False]])
    assert compat.mask_of(np.ones(2)) is None


def test_fit_goes_on_at_the_epoch_that_is_set():
    class Skip(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            compat.set_initial_epoch(self.model, 2)

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.ones((2, 1))
    history = model.fit(data, data, epochs=3, verbose=0, callbacks=[Skip()])
    assert history.epoch == [2]
