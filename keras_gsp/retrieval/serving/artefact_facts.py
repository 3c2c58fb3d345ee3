"""What every export says of itself, to programs and to people."""

import datetime
import importlib.metadata
from typing import Any

import keras

from keras_gsp.retrieval.serving.served_retriever import ServedEncoder

METADATA = "metadata.json"
CARD = "README.md"
_SCORES = ("map_at_r", "precision_at_1", "precision_at_r", "num_queries")
_USE = (
    "Finding images of the same class among those of a gallery, also of "
    "classes that training did not see."
)
_LIMITS = (
    "A search always finds a nearest neighbor, also for an image of nothing "
    "that the gallery holds; a match threshold is calibrated on held-out "
    "classes.",
    "The scores hold for the data below; on images of another kind they are "
    "to be measured again.",
    "Nobody's identity, health or character is to be inferred with it.",
)


def exported_facts(
    served: ServedEncoder, metadata: dict[str, Any] | None
) -> dict[str, Any]:
    """Versions, sizes and preparation, beside what the caller says.

    Args:
        served: the encoder that is exported.
        metadata: JSON values to put first.

    Returns:
        A dict of JSON values.
    """
    import tensorflow as tf

    now = datetime.datetime.now(datetime.UTC)
    return {
        **(metadata or {}),
        "exported": now.isoformat(timespec="seconds"),
        "versions": {
            "keras_gsp": importlib.metadata.version("keras-gsp"),
            "keras": keras.__version__,
            "tensorflow": tf.__version__,
        },
        "image_shape": [served.height, served.width, served.channels],
        "crop_fraction": served.crop_fraction,
        "max_pixels": served.max_pixels,
        "embedding_size": served.embedding_size,
    }


def model_card(facts: dict[str, Any]) -> str:
    """Writes a model card in Markdown from an export's metadata.

    Args:
        facts: what `metadata.json` holds. `"recipe"` (a dict with
            `"dataset"`), `"scores"`, `"run"`, `"command"`, `"intended_use"`
            and `"limits"` are shown where they are given.

    Returns:
        The page.
    """
    parts = [
        ["# Model card", ""],
        _section("Intended use", [facts.get("intended_use", _USE)]),
        _section("Data and training", _data(facts)),
        _section("Protocol and scores", _scores(facts)),
        _section("Files and preparation", _preparation(facts)),
        _section("Limits", [f"- {x}" for x in facts.get("limits", _LIMITS)]),
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _section(title, lines):
    return [f"## {title}", "", *lines, ""]


def _data(facts):
    recipe = facts.get("recipe", {})
    if not recipe:
        return ["Not stated."]
    told = [f"Data set `{recipe.get('dataset', 'not stated')}`."]
    names = ("backbone", "pooling", "loss", "regularizer", "steps", "seed")
    told += [f"- {name}: {recipe[name]}" for name in names if name in recipe]
    if "run" in facts:
        told.append(f"- run: {facts['run']}")
    if "command" in facts:
        told += ["", "Made by:", "", "```bash", facts["command"], "```"]
    return told


def _scores(facts):
    scores = facts.get("scores", {})
    shown = {name: scores[name] for name in _SCORES if name in scores}
    if not shown:
        return ["Not measured."]
    told = [
        "Images of classes never seen in training, each a query against all "
        "others; the weights were chosen on validation classes.",
        "",
        "| score | value |",
        "| --- | --- |",
    ]
    told += [
        f"| {name} | {value:.4f} |"
        if isinstance(value, float)
        else f"| {name} | {value} |"
        for name, value in shown.items()
    ]
    quantized = facts.get("map_at_r_of_format")
    if quantized is not None:
        told += ["", f"MAP@R with this file: {quantized:.4f}."]
    return told


def _preparation(facts):
    height, width, channels = facts["image_shape"]
    fraction = facts["crop_fraction"]
    cut = (
        "resized as a whole"
        if fraction is None
        else f"cut to the centered square of {fraction:.4g} of the shorter "
        "side and resized (bilinear, no anti-aliasing)"
    )
    told = [
        f"Images are turned upright (Exif), {cut} to {height} x {width} "
        f"pixels of {channels} channels in [0, 255]; the embedding has "
        f"{facts['embedding_size']} numbers, compared by Euclidean distance.",
    ]
    if "gallery_size" in facts:
        told += ["", f"The gallery holds {facts['gallery_size']} images."]
    if "largest_difference" in facts:
        told += [
            "",
            "Largest difference to Keras on "
            f"{facts['compared_images']} images: "
            f"{facts['largest_difference']:.1e}.",
        ]
    return told
