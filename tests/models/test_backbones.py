"""BN-Inception equals a NumPy network."""

import math

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.models.backbones.bn_inception import bn_inception_state


def random_state(seed=0):
    """A randomly initialized state dict, as PyTorch would store it."""
    rng = np.random.default_rng(seed)
    state = {}
    for name, value in bn_inception_state(gsp.models.bn_inception()).items():
        if value.ndim == 4:
            scale = math.sqrt(2 / np.prod(value.shape[1:]))
            value = scale * rng.standard_normal(value.shape)
        elif name.endswith("running_var") or name.endswith("bn.weight"):
            value = rng.uniform(0.5, 1.5, value.shape)
        else:
            value = 0.1 * rng.standard_normal(value.shape)
        state[name] = value.astype("float32")
        if name.endswith("running_var"):
            prefix = name.removesuffix("running_var")
            state[f"{prefix}num_batches_tracked"] = np.array(1)
    state["last_linear.weight"] = np.zeros((1000, 1024), "float32")
    return state


def windows(x, size, strides):
    shape = (size, size)
    view = np.lib.stride_tricks.sliding_window_view(x, shape, axis=(1, 2))
    return view[:, ::strides, ::strides]


def padded(x, before, after=None, value=0.0):
    after = before if after is None else after
    sides = ((0, 0), (before, after), (before, after), (0, 0))
    return np.pad(x, sides, constant_values=value)


class Reference:
    """torch.nn.functional's arithmetic, channels last, float64."""

    def __init__(self, state):
        self.state = {k: np.asarray(v, "float64") for k, v in state.items()}

    def convolution(self, x, name, strides=1):
        kernel = self.state[f"{name}.weight"]
        x = windows(padded(x, kernel.shape[-1] // 2), kernel.shape[-1], strides)
        x = np.einsum("bhwcij,ocij->bhwo", x, kernel, optimize=True)
        x = x + self.state[f"{name}.bias"]
        mean, var, weight, bias = (
            self.state[f"{name}_bn.{part}"]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return np.maximum((x - mean) / np.sqrt(var + 1e-5) * weight + bias, 0)

    def halve(self, x):
        """MaxPool2d(3, stride=2, ceil_mode=True)."""
        length = math.ceil((x.shape[1] - 3) / 2) + 1
        missing = (length - 1) * 2 + 3 - x.shape[1]
        x = padded(x, 0, missing, -np.inf)
        return windows(x, 3, 2).max(axis=(-2, -1))

    def inception(self, x, block):
        name = f"inception_{block}"
        strides = 1 if f"{name}_1x1.weight" in self.state else 2
        paths = []
        if strides == 1:
            paths.append(self.convolution(x, f"{name}_1x1"))
        y = self.convolution(x, f"{name}_3x3_reduce")
        paths.append(self.convolution(y, f"{name}_3x3", strides))
        y = self.convolution(x, f"{name}_double_3x3_reduce")
        y = self.convolution(y, f"{name}_double_3x3_1")
        paths.append(self.convolution(y, f"{name}_double_3x3_2", strides))
        if strides == 2:
            paths.append(self.halve(x))
        else:
            if block == "5b":
                y = windows(padded(x, 1, value=-np.inf), 3, 1)
                y = y.max(axis=(-2, -1))
            else:  # count_include_pad=True
                y = windows(padded(x, 1), 3, 1).mean(axis=(-2, -1))
            paths.append(self.convolution(y, f"{name}_pool_proj"))
        return np.concatenate(paths, axis=-1)

    def __call__(self, rgb):
        x = rgb[..., ::-1].astype("float64") - [104, 117, 128]
        x = self.halve(self.convolution(x, "conv1_7x7_s2", 2))
        x = self.convolution(x, "conv2_3x3_reduce")
        x = self.halve(self.convolution(x, "conv2_3x3"))
        for block in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e"):
            x = self.inception(x, block)
        return self.inception(self.inception(x, "5a"), "5b")


def test_converted_weights_give_the_reference_outputs(tmp_path):
    side = 35  # Odd at every scale.
    state = random_state()
    model = gsp.models.bn_inception()
    np.savez(tmp_path / "state.npz", **state)
    gsp.models.load_bn_inception_weights(model, tmp_path / "state.npz")
    images = np.random.default_rng(1).integers(0, 256, (1, side, side, 3))
    expected = Reference(state)(images)
    outputs = keras.ops.convert_to_numpy(model(images.astype("float32")))
    assert outputs.shape == expected.shape
    # 36 layers in float32.
    np.testing.assert_allclose(outputs, expected, atol=2e-4 * expected.max())
    # A file of weights comes back as it is.
    for name, value in bn_inception_state(model).items():
        np.testing.assert_array_equal(value, state[name])


def test_published_sizes_of_the_map():
    model = gsp.models.bn_inception()
    # Some of them the original refuses.
    for side, size in {32: 1, 48: 2, 100: 3, 224: 7, 227: 7, 256: 8}.items():
        shape = model.compute_output_shape((2, side, side, 3))
        assert shape == (2, size, size, 1024)
    # The original trains 11,295,240 values with its 1000-way classifier.
    counts = [int(np.prod(w.shape)) for w in model.trainable_weights]
    assert sum(counts) == 11_295_240 - 1024 * 1000 - 1000


def test_a_foreign_state_is_refused():
    state = random_state()
    model = gsp.models.bn_inception()
    conv = state.pop("conv1_7x7_s2.weight")
    with pytest.raises(ValueError, match="1 missing.*conv1_7x7_s2.weight"):
        gsp.models.load_bn_inception_weights(model, state)
    with pytest.raises(FileNotFoundError, match="nowhere.npz"):
        gsp.models.load_bn_inception_weights(None, "nowhere.npz")
    state["conv1_7x7_s2.weight"] = conv[:, :1]
    with pytest.raises(ValueError, match=r"\(7, 7, 1, 64\)"):
        gsp.models.load_bn_inception_weights(model, state)
