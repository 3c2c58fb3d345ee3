"""Encoders as ONNX and LiteRT files, for programs without TensorFlow."""

from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_choice
from keras_gsp._encoding import embedding_of
from keras_gsp._optional import needed
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.saved_gallery import save_gallery
from keras_gsp.retrieval.serving.artefact_facts import (
    exported_facts,
    write_facts,
)
from keras_gsp.retrieval.serving.canaries import MOST, Canaries
from keras_gsp.retrieval.serving.export import gradients_forgotten
from keras_gsp.retrieval.serving.served_encoder import ServedEncoder
from keras_gsp.retrieval.verification import verify
from keras_gsp.storage.whole import whole_folder

_onnx = partial(needed, user="export_onnx", install="'keras-gsp[onnx]'")
ONNX, LITERT = "encoder.onnx", "encoder.tflite"
GALLERY = "gallery"
# Largest distance to the embeddings of Keras, of length 1.
BOUNDS = {None: 1e-5, "float16": 5e-3, "int8": 0.05}


def export_onnx(
    encoder: keras.Model,
    path: str | Path,
    *,
    quantization: str | None = None,
    **options: Any,
) -> None:
    """Writes an encoder as ONNX, compared with Keras, and its gallery.

    The folder holds `encoder.onnx` (one input, `images` (batch, height, width,
    channels), pixels in [0, 255] in the encoder's dtype; one output (batch,
    embedding_size)), `metadata.json`, checksums, a model card `README.md`,
    canaries for `verify_export` and, with an index, `gallery/`, which
    `ExactIndex.load` reads. Keras converts: by tf2onnx (extra `[onnx]`) on
    TensorFlow, by jax2onnx, which is installed by its own name, on JAX.

    Args:
        encoder: as for `export_encoder`.
        path: folder to make.
        quantization: `"int8"`: onnxruntime's dynamic quantization, weights of
            a quarter of the size. `None`: float32.
        **options: those of `export_encoder`, and
            `sample_images`, (images, height, width, channels), pictures on
            which the file is compared with Keras; by default noise, for a
            file that is not quantized.
            `largest_distance` between the embeddings of the file and of Keras
            (relative to their length where that is above 1), beyond which
            nothing is written; by default 1e-5, float16 0.005, int8 0.05.
            `index`, in memory, of which the gallery is written.

    Raises:
        ImportError: the converter or onnxruntime is not installed.
        RuntimeError: another backend than TensorFlow or JAX, an encoder with
            operations that the format lacks, or a file that does not agree
            with Keras.
        ValueError: an unknown quantization, or one without `sample_images`.
            Also what `export_encoder` refuses.

    Example:

    ```python
    import tempfile
    import keras
    import numpy as np
    import keras_gsp as gsp

    encoder = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    images = np.random.default_rng(0).integers(0, 256, (8, 4, 4, 3))
    try:
        with tempfile.TemporaryDirectory() as folder:
            gsp.retrieval.export_onnx(encoder, f"{folder}/onnx")
            found = gsp.retrieval.PortableEncoder(f"{folder}/onnx")
            assert found.embed(images).shape == (8, 48)
    except ImportError:
        pass
    ```
    """
    _onnx("onnxruntime")
    check_choice(None, "int8", quantization=quantization)
    is_jax = keras.backend.backend() == "jax"
    package = "jax2onnx" if is_jax else "tf2onnx"
    needed(package, "export_onnx", package if is_jax else "'keras-gsp[onnx]'")

    def convert(model, file):
        (images,) = model.inputs
        spec = keras.InputSpec(images.dtype, images.shape, name="images")
        model.export(file, format="onnx", input_signature=[spec], verbose=False)
        if quantization is not None:
            quantize = _onnx("onnxruntime.quantization").quantize_dynamic
            quantize(file, file)

    options["backends"] = "tensorflow", "jax"
    _write(encoder, path, ONNX, convert, quantization, **options)


def export_litert(
    encoder: keras.Model,
    path: str | Path,
    *,
    quantization: str | None = None,
    **options: Any,
) -> None:
    """Writes an encoder as LiteRT (TFLite), compared with Keras.

    The folder is that of `export_onnx`, with `encoder.tflite`; the batch size
    is dynamic (`resize_tensor_input`). Needs TensorFlow as the backend.

    `quantization` is the converter's: `"float16"`, weights of half the size,
    or `"int8"`, of a quarter; activations stay float, because the pooling's
    solver needs more than 8 bits. All else is as for `export_onnx`.
    """
    check_choice(None, "float16", "int8", quantization=quantization)

    def convert(model, file):
        import tensorflow as tf

        settings: dict[str, Any] = {}
        if quantization is not None:
            settings["optimizations"] = [tf.lite.Optimize.DEFAULT]
        if quantization == "float16":
            settings["target_spec"] = {"supported_types": [tf.float16]}
        model.export(file, format="litert", verbose=False, **settings)

    _write(encoder, path, LITERT, convert, quantization, **options)


class PortableEncoder:
    """Runs an export of `export_onnx` or `export_litert`.

    `path` is the folder, whose checksums are compared first: a `ValueError`
    names damaged files. `facts` are the contents of `metadata.json`.
    """

    def __init__(self, path: str | Path) -> None:
        folder = Path(path)
        found = [name for name in _RUNNERS if (folder / name).is_file()]
        if not found:
            raise FileNotFoundError(
                f"`path` must hold {ONNX} or {LITERT}. Received: {path}."
            )
        self.facts = verify(folder)
        self._embed = _RUNNERS[found[0]](folder / found[0])

    def embed(self, images: Any) -> np.ndarray:
        """Embeds images (batch, height, width, channels), (batch, size).

        Pixels are in [0, 255], prepared as in the metadata; another shape
        than the encoder's is a `ValueError`.
        """
        images = _checked(images, tuple(self.facts["image_shape"]), "images")
        return self._embed(images.astype(self.facts["input_dtype"]))


def _write(
    encoder,
    path,
    name,
    convert,
    quantization,
    *,
    sample_images=None,
    largest_distance=None,
    index=None,
    **options,
):
    """Writes a folder unless the file's embeddings leave those of Keras."""
    served = ServedEncoder(encoder, index, **options)
    if None in served.image_shape:
        raise ValueError(
            "`encoder` must take images of one size: a `TwoLooks` with "
            "`preprocessing=gsp.data.Preprocessing(448, None)`, for example. "
            f"Received: images of shape {served.image_shape}."
        )
    if sample_images is None:
        if quantization is not None:
            raise ValueError(
                "`sample_images` must be pictures to compare a quantized file "
                "on. Received: sample_images=None, "
                f"quantization={quantization!r}."
            )
        noise = np.random.default_rng(0)
        sample_images = noise.integers(0, 256, (4, *served.image_shape))
    images = _checked(sample_images, served.image_shape, "sample_images", 1)
    images = images.astype(served.dtype)
    if index is not None:
        index._check_filled()
    if largest_distance is None:
        largest_distance = BOUNDS[quantization]
    outputs = served.encoder.predict_on_batch(images)
    expected = np.asarray(embedding_of(outputs), "float32")
    numbers = list(map(str, range(len(images))))
    with whole_folder(path, overwrite=served.overwrite) as folder:
        embed, found = _converted(served, convert, folder / name, images)
        every = Canaries(numbers, images, expected, served.space)
        facts = exported_facts(served) | {
            "format": "onnx" if name == ONNX else "litert",
            "quantization": quantization,
            "input_dtype": served.dtype,
            "largest_difference": every.check(found, largest_distance),
            "compared_images": len(images),
        }
        # Dynamic quantization depends on the batch: as `verify_export` does.
        some = images[:MOST]
        Canaries(numbers[:MOST], some, embed(some), served.space).save(folder)
        if index is not None:
            (folder / GALLERY).mkdir()
            save_gallery(index, folder / GALLERY, {"kind": ExactIndex.kind})
            facts["gallery_size"] = len(index)
            if index.match is not None:
                facts["match_threshold"] = index.match.get_config()
        write_facts(folder, facts)


def _converted(served, convert, path, images):
    """Writes the file; returns what embeds with it, and the embeddings."""
    try:
        with gradients_forgotten():
            convert(_alone(served), str(path))
        embed = _RUNNERS[path.name](path)
        # The first image alone: the batch is dynamic.
        return embed, np.concatenate([embed(images[:1]), embed(images)[1:]])
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001, converters have their own
        raise RuntimeError(
            f"`encoder` must consist of what {path.name} can hold; a matrix "
            "factorization, as of GeneralizedMaxPooling, is not among it. "
            "`export_encoder` serves every encoder. Received: "
            f"{type(error).__name__}: {str(error)[:500]}"
        ) from error


def _alone(served):
    """A model of `images` with one output, the embedding in float32."""
    images = keras.Input(served.image_shape, dtype=served.dtype, name="images")
    outputs = embedding_of(served.encoder(images, training=False))
    outputs = keras.layers.Identity(name="embedding", dtype="float32")(outputs)
    return keras.Model(images, outputs)


def _checked(images, shape, name, least=0):
    images = np.asarray(images)
    if images.shape[1:] != shape or len(images) < least:
        raise ValueError(
            f"`{name}` must have the shape (batch, {str(shape)[1:-1]}). "
            f"Received: {images.shape}."
        )
    return images


def _onnx_runner(file):
    session = _onnx("onnxruntime").InferenceSession(
        str(file), providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def _litert_runner(file):
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        import tensorflow as tf

        Interpreter = tf.lite.Interpreter
    interpreter = Interpreter(model_path=str(file))
    given = interpreter.get_input_details()[0]["index"]
    answer = interpreter.get_output_details()[0]["index"]

    def embed(images):
        interpreter.resize_tensor_input(given, images.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given, images)
        interpreter.invoke()
        return interpreter.get_tensor(answer)

    return embed


_RUNNERS = {ONNX: _onnx_runner, LITERT: _litert_runner}
