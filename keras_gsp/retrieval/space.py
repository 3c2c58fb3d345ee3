"""Fingerprints of embedding spaces: which encoder made an index."""

import dataclasses
import hashlib
import inspect
import json
from typing import Any, Self

import numpy as np

from keras_gsp._compat import layers_at_any_depth
from keras_gsp._encoding import embedding_tensor
from keras_gsp.data.preprocessing import CUT, preprocessing_of

# Settings of a layer that do not change what it computes.
_IDLE = ("name", "trainable", "dtype", "seed", "batch_shape", "dropout", "rate")
_IDLE_ENDINGS = ("_initializer", "_regularizer", "_constraint", "_config")


class WithConfig:
    """Config of a dataclass, which may have a `space`."""

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments as JSON values, without empty ones."""
        config = _plain(dataclasses.asdict(self))  # type: ignore[call-overload]
        return {k: v for k, v in config.items() if v not in (None, [])}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes an instance from `get_config`."""
        if space := config.get("space"):
            config = config | {"space": SpaceFingerprint(**space)}
        return cls(**config)


@dataclasses.dataclass(frozen=True)
class SpaceFingerprint(WithConfig):
    """What decides where an encoder embeds an image.

    Indexes of `from_encoder` and exports carry it and refuse another encoder;
    `None` in its place, as of bare arrays, is unknown and fits every encoder.
    `weights` and `layers` are hashes, `preprocessing` is how images are cut.
    """

    weights: str
    layers: str
    normalization: str | None = None
    embedding_size: int | None = None
    preprocessing: dict[str, Any] | None = None


def space_fingerprint(encoder: Any) -> SpaceFingerprint | None:
    """Returns the fingerprint of an encoder's embedding space.

    Equal weights, layers and preprocessing give equal fingerprints, also in
    another process or backend; anything but a built Keras model gives `None`.
    """
    if not hasattr(encoder, "weights"):
        return None
    layers = list(layers_at_any_depth(encoder, include_self=False))
    found = [getattr(layer, "normalization", None) for layer in layers]
    cut: Any = preprocessing_of(encoder)
    inputs = getattr(encoder, "inputs", None)
    return SpaceFingerprint(
        weights=_digest(_weight(one) for one in encoder.weights),
        layers=_digest([*map(_settings, layers), *_own_settings(encoder)]),
        normalization=next((one for one in reversed(found) if one), None),
        embedding_size=embedding_tensor(encoder).shape[-1] if inputs else None,
        preprocessing=cut and _plain({n: getattr(cut, n) for n in CUT}),
    )


def check_space(encoder: Any, holder: Any, name: str = "index") -> None:
    """Raises `ValueError` if another encoder made an index, called `name`."""
    made = getattr(holder, "space", None)
    check_same_space(made, made and space_fingerprint(encoder), name)


def check_same_space(
    made: SpaceFingerprint | None, other: SpaceFingerprint | None, name: str
) -> None:
    """Raises `ValueError` unless `name` was made by the other's encoder."""
    if made is None or other is None or made == other:
        return
    differing = [
        f"{field.name} {mine} there, {theirs} here"
        for field in dataclasses.fields(SpaceFingerprint)
        if (mine := getattr(made, field.name))
        != (theirs := getattr(other, field.name))
    ]
    raise ValueError(
        f"`{name}` must hold the embedding space of the encoder. Received: "
        f"made by another encoder: {'; '.join(differing)}. Embed it again, or "
        "carry it over with `gsp.retrieval.upgrade`."
    )


def _plain(config):
    """As JSON returns it: lists for tuples."""
    return json.loads(json.dumps(config))


def _weight(variable):
    array = np.ascontiguousarray(variable.numpy())
    return f"{array.dtype.name}{array.shape}".encode() + array.tobytes()


def _settings(layer):
    """A layer's type and plain settings; others are layers of their own."""
    try:
        config = {} if hasattr(layer, "layers") else layer.get_config()
    except NotImplementedError:
        config = {k: v for k, v in vars(layer).items() if k[0] != "_"}
    settings = {
        name: value
        for name, value in config.items()
        if name not in _IDLE
        and not name.endswith(_IDLE_ENDINGS)
        and isinstance(value, str | int | float | list | tuple | None)
    }
    kind = type(layer).__name__
    return json.dumps([kind, settings], sort_keys=True, default=str).encode()


def _own_settings(model):
    """Plain arguments of a model's class, such as `TwoLooks(combine=...)`."""
    names = inspect.signature(type(model).__init__).parameters
    values = {k: getattr(model, k, None) for k in names if k not in _IDLE}
    plain = {k: v for k, v in values.items() if isinstance(v, str | float)}
    return [json.dumps(plain, sort_keys=True).encode()] if plain else []


def _digest(parts):
    """A hash of parts in any order: layers have one order in each process."""
    digests = sorted(hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(b"".join(digests)).hexdigest()[:16]
