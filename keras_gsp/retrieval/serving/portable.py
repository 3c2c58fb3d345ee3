"""Encoders as ONNX and LiteRT files, for programs without TensorFlow."""

from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_gsp.embeddings.labeled_batches import embedding_of
from keras_gsp.ops.arguments import check_choice
from keras_gsp.ops.extras import needed
from keras_gsp.retrieval.index.exact import ExactIndex, GalleryIndex
from keras_gsp.retrieval.index.saved_gallery import save_gallery
from keras_gsp.retrieval.serving.artefact_facts import (
    exported_facts,
    write_facts,
)
from keras_gsp.retrieval.serving.served_encoder import ServedEncoder
from keras_gsp.retrieval.verification import verify
from keras_gsp.storage.whole import whole_folder

_onnx = partial(needed, user="export_onnx", install="'keras-gsp[onnx]'")
ONNX, LITERT = "encoder.onnx", "encoder.tflite"
GALLERY = "gallery"
# Largest difference to Keras, of embeddings on the unit sphere.
TOLERANCE = 1e-5


def export_onnx(
    encoder: keras.Model,
    path: str | Path,
    *,
    quantization: str | None = None,
    index: GalleryIndex | None = None,
    image_size: int | tuple[int, int] | None = None,
    crop_fraction: float | str | None = "auto",
    sample_images: Any = None,
    truncate_to: int | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes an encoder as ONNX, compared with Keras, and its gallery.

    The folder holds `encoder.onnx` (input `images` (batch, height, width,
    channels), pixels in [0, 255] in the encoder's dtype; output `embedding`
    (batch, embedding_size)), `metadata.json`, checksums, a model card
    `README.md` and, with an index, `gallery/`, which `ExactIndex.load` reads.

    The converter is tf2onnx (extra `[onnx]`) on TensorFlow and jax2onnx, which
    is installed by its own name, on JAX.

    Args:
        encoder: as for `export_encoder`.
        path: folder to make.
        quantization: as for `export_litert`; `"int8"` has one scale for each
            output channel. Default `None`: float32.
        index: an index in memory, of which the gallery is written. Default
            `None`: no gallery.
        image_size: as for `export_encoder`.
        crop_fraction: as for `export_encoder`, for the model card.
        sample_images: (images, height, width, channels) on which the file
            must agree with Keras to 1e-5 (of the largest value, where that
            is above 1). Default `None`: four images of noise.
        truncate_to: as for `export_encoder`.
        metadata: as for `export_encoder`.
        overwrite: whether to replace what is at `path`. Default `False`.

    Raises:
        FileExistsError: `path` exists and `overwrite` is `False`.
        ImportError: the converter or onnxruntime is not installed.
        RuntimeError: another backend than TensorFlow or JAX, or a file that
            does not agree with Keras.
        ValueError: what `export_encoder` refuses.

    Example:

    ```python
    import tempfile
    import keras
    import numpy as np
    import keras_gsp as gsp

    encoder = keras.Sequential([
        keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(4)
    ])
    try:
        with tempfile.TemporaryDirectory() as folder:
            gsp.retrieval.export_onnx(encoder, f"{folder}/onnx")
            found = gsp.retrieval.PortableEncoder(f"{folder}/onnx")
            assert found.embed(np.zeros((2, 16, 16, 3))).shape == (2, 4)
    except ImportError:
        pass
    ```
    """
    _onnx("onnxruntime")
    served = ServedEncoder(
        encoder,
        image_size,
        crop_fraction,
        index=index,
        truncate_to=truncate_to,
        backends=("tensorflow", "jax"),
    )
    facts = {**(metadata or {}), "quantization": quantization}
    with whole_folder(path, overwrite=overwrite) as folder:
        _write(folder, ONNX, served, index, sample_images, facts)


def export_litert(
    encoder: keras.Model,
    path: str | Path,
    *,
    quantization: str | None = None,
    index: GalleryIndex | None = None,
    image_size: int | tuple[int, int] | None = None,
    crop_fraction: float | str | None = "auto",
    sample_images: Any = None,
    truncate_to: int | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes an encoder as LiteRT (TFLite), compared with Keras.

    The folder is that of `export_onnx`, with `encoder.tflite`; the batch size
    is dynamic (`resize_tensor_input`). Only built-in operations are used.

    Args:
        encoder: as for `export_encoder`.
        path: folder to make.
        quantization: `None`: float32. `"float16"`: weights of half the size.
            `"int8"`: weights of a quarter, while activations stay float,
            because the pooling's solver needs more than 8 bits. The metadata
            hold the `largest_difference` to Keras on `sample_images`.
        index: as for `export_onnx`.
        image_size: as for `export_encoder`.
        crop_fraction: as for `export_onnx`.
        sample_images: as for `export_onnx`.
        truncate_to: as for `export_encoder`.
        metadata: as for `export_onnx`.
        overwrite: whether to replace what is at `path`. Default `False`.

    Raises:
        FileExistsError: `path` exists and `overwrite` is `False`.
        RuntimeError: another backend than TensorFlow, or a file that does
            not agree with Keras.
        ValueError: an unknown quantization; what `export_encoder` refuses.
    """
    served = ServedEncoder(
        encoder, image_size, crop_fraction, index=index, truncate_to=truncate_to
    )
    facts = {**(metadata or {}), "quantization": quantization}
    with whole_folder(path, overwrite=overwrite) as folder:
        _write(folder, LITERT, served, index, sample_images, facts)


class PortableEncoder:
    """Runs an export of `export_onnx` or `export_litert`.

    Args:
        path: the folder. Its checksums are compared first.

    Attributes:
        facts: contents of `metadata.json`.

    Raises:
        FileNotFoundError: no such export there.
        ImportError: onnxruntime is not installed, for an ONNX file.
        ValueError: files that are damaged, by name.
    """

    def __init__(self, path: str | Path) -> None:
        folder = Path(path)
        files = [folder / name for name in (ONNX, LITERT)]
        found = [file for file in files if file.is_file()]
        if not found:
            raise FileNotFoundError(
                f"`path` must hold {ONNX} or {LITERT}. Received: {path}."
            )
        self.facts = verify(folder)
        self._embed = _RUNNERS[found[0].name](found[0])

    def embed(self, images: Any) -> np.ndarray:
        """Embeds images of the encoder's size.

        Args:
            images: (batch, height, width, channels), pixels in [0, 255],
                prepared as in the metadata.

        Returns:
            (batch, embedding_size), float32.

        Raises:
            ValueError: images of another shape.
        """
        images = np.asarray(images)
        _check_shape(images, tuple(self.facts["image_shape"]), "images")
        return self._embed(images.astype(self.facts["input_dtype"]))


def _check_shape(images, shape, name, least=0):
    if images.shape[1:] != shape or len(images) < least:
        raise ValueError(
            f"`{name}` must have the shape (batch, {str(shape)[1:-1]}). "
            f"Received: {images.shape}."
        )


def _write(folder, name, served, index, images, facts):
    """Writes a folder and compares the encoder's file with Keras."""
    quantization = facts["quantization"]
    check_choice(None, "float16", "int8", quantization=quantization)
    shape = served.image_shape
    if images is None:
        images = np.random.default_rng(0).integers(0, 256, (4, *shape))
    images = np.asarray(images).astype(served.dtype)
    _check_shape(images, shape, "sample_images", least=1)
    _WRITERS[name](served, folder / name, quantization)
    embed = _RUNNERS[name](folder / name)
    expected = embedding_of(served.encoder.predict_on_batch(images))
    # The first image alone: the batch is dynamic.
    found = np.concatenate([embed(images[:1]), embed(images)[1:]])
    scale = max(1.0, float(np.abs(expected).max()))
    difference = float(np.abs(found - expected).max()) / scale
    if quantization is None and not difference <= TOLERANCE:
        raise RuntimeError(
            f"{name} must give the embeddings of the encoder, to {TOLERANCE}. "
            f"Received: a difference of {difference}."
        )
    facts = exported_facts(served, facts) | {
        "format": "onnx" if name == ONNX else "litert",
        "input_dtype": served.dtype,
        "largest_difference": difference,
        "compared_images": len(images),
    }
    if index is not None:
        index._check_filled()
        (folder / GALLERY).mkdir()
        save_gallery(index, folder / GALLERY, {"kind": ExactIndex.kind})
        facts["gallery_size"] = len(index)
        if index.match is not None:
            facts["match_threshold"] = index.match.get_config()
    write_facts(folder, facts)


def _graph(served):
    """The encoder as a `tf.function` of `images`, and what tracks it."""
    import tensorflow as tf

    spec = tf.TensorSpec((None, *served.image_shape), served.dtype, "images")
    module = tf.Module()
    module.encoder_variables = served.variables

    @tf.function(input_signature=[spec])
    def embedding(images):
        outputs = served.encoder(images, training=False)
        return {"embedding": tf.cast(embedding_of(outputs), "float32")}

    return embedding, module


def _write_onnx(served, file, quantization):
    if keras.backend.backend() == "jax":
        model = _onnx_of_jax(served, file)
    else:
        tf2onnx = _onnx("tf2onnx")
        function, _ = _graph(served)
        signature = function.input_signature
        model, _ = tf2onnx.convert.from_function(function, signature)
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    if quantization is not None:
        _shrink_weights(model, quantization)
    file.write_bytes(model.SerializeToString())


def _onnx_of_jax(served, file):
    needed("jax2onnx", "export_onnx", "jax2onnx")
    images = keras.Input(served.image_shape, dtype=served.dtype, name="images")
    outputs = embedding_of(served.encoder(images, training=False))
    model = keras.Model(images, keras.ops.cast(outputs, "float32"))
    shape = (None, *served.image_shape)
    spec = keras.InputSpec(served.dtype, shape, name="images")
    model.export(
        str(file), format="onnx", input_signature=[spec], verbose=False
    )
    written = _onnx("onnx").load(file)
    (output,) = written.graph.output
    for node in written.graph.node:
        for place, name in enumerate(node.output):
            if name == output.name:
                node.output[place] = "embedding"
    output.name = "embedding"
    return written


def _shrink_weights(model, quantization):
    """Stores kernels in few bits; a node turns each into float32 again."""
    onnx = _onnx("onnx")
    graph, nodes = model.graph, []
    for tensor in list(graph.initializer):
        values = onnx.numpy_helper.to_array(tensor)
        # Not scales and offsets of channels, which may be of shape
        # (1, channels, 1, 1): their sizes differ too much for one scale.
        if values.dtype != "float32" or values.size == max(
            values.shape, default=1
        ):
            continue
        graph.initializer.remove(tensor)
        parts, operation = {"half": values.astype("float16")}, "Cast"
        options: dict[str, Any] = {"to": onnx.TensorProto.FLOAT}
        if quantization == "int8":
            # Output channels: first of a convolution, last of a product.
            axis = 0 if values.ndim == 4 else values.ndim - 1
            others = tuple(set(range(values.ndim)) - {axis})
            scale = np.abs(values).max(axis=others, keepdims=True) / 127
            scale = np.maximum(scale, np.finfo("float32").tiny)
            levels = np.rint(values / scale).astype("int8")
            parts = {"levels": levels, "scale": scale.reshape(-1)}
            operation, options = "DequantizeLinear", {"axis": axis}
        names = [f"{tensor.name}_{part}" for part in parts]
        for name, part in zip(names, parts.values(), strict=True):
            graph.initializer.append(onnx.numpy_helper.from_array(part, name))
        node = onnx.helper.make_node(operation, names, [tensor.name], **options)
        nodes.append(node)
    nodes += list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)


def _write_litert(served, file, quantization):
    import tensorflow as tf

    function, module = _graph(served)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], module
    )
    if quantization is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == "float16":
        converter.target_spec.supported_types = [tf.float16]
    file.write_bytes(converter.convert())


def _onnx_runner(file):
    onnxruntime = _onnx("onnxruntime")
    session = onnxruntime.InferenceSession(
        str(file), providers=["CPUExecutionProvider"]
    )
    return lambda images: session.run(["embedding"], {"images": images})[0]


def _litert_runner(file):
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        import tensorflow as tf

        Interpreter = tf.lite.Interpreter
    interpreter = Interpreter(model_path=str(file))
    given = interpreter.get_input_details()[0]
    answer = interpreter.get_output_details()[0]

    def embed(images):
        interpreter.resize_tensor_input(given["index"], images.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(answer["index"])

    return embed


_WRITERS = {ONNX: _write_onnx, LITERT: _write_litert}
_RUNNERS = {ONNX: _onnx_runner, LITERT: _litert_runner}
