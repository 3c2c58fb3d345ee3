"""Metadata and model card of an export.

The card begins with the metadata that model hubs read: library, license, and
scores as `model-index`. Neither file names a folder of the machine.
"""

import datetime
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import keras

from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.retrieval.serving.served_encoder import ServedEncoder
from keras_gsp.retrieval.verification import METADATA
from keras_gsp.storage.checksums import write_checksums

CARD = "README.md"
_SCORES = ("map_at_r", "precision_at_1", "precision_at_r", "num_queries")
_TAGS = "keras-gsp", "metric-learning", "image-retrieval"
_SETTINGS = "backbone", "pooling", "loss", "regularizer", "steps", "seed"
_USE = (
    "Finding images of the same class in a gallery, also of classes that were "
    "not in the training data."
)
_PROTOCOL = (
    "Measured on images of classes that were not in the training data, each a "
    "query among all others; the weights were chosen on validation classes."
)
_LIMITS = (
    "- A search always returns a nearest neighbor, also for an image of a "
    "class that the gallery does not hold.",
    "- The scores hold for the data above; measure them again on other images.",
    "- Do not use it to infer a person's identity, health or character.",
)


def exported_facts(served: ServedEncoder) -> dict[str, Any]:
    """Returns the metadata of an export: versions, sizes and preparation."""
    backend = keras.backend.backend()
    now = datetime.datetime.now(datetime.UTC)
    packages = {"keras_gsp": "keras-gsp", "keras": "keras"}
    versions = {k: importlib.metadata.version(v) for k, v in packages.items()}
    versions[backend] = importlib.import_module(backend).__version__
    return {
        **without_folders(served.options.metadata or {}),
        "exported": now.isoformat(timespec="seconds"),
        "versions": versions,
        "image_shape": list(served.image_shape),
        "crop_fraction": served.crop_fraction,
        "background": list(served.background),
        "max_pixels": served.max_pixels,
        "embedding_size": served.embedding_size,
        "space": served.space and served.space.get_config(),
    }


def without_folders(value: Any) -> Any:
    """Returns JSON values with paths shortened to their last part.

    Those that are absolute, or lead out of the working folder.
    """
    if isinstance(value, dict):
        return {name: without_folders(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(one) for one in value]
    if not isinstance(value, str):
        return value
    path = Path(value).expanduser()
    is_outside = path.is_absolute() or path.parts[:1] == ("..",)
    return path.name if is_outside else value


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Writes `metadata.json`, a model card and checksums into a folder."""
    text = json.dumps(facts, indent=2)
    (folder / METADATA).write_text(text + "\n", encoding="utf-8")
    (folder / CARD).write_text(_model_card(facts), encoding="utf-8")
    write_checksums(folder)


def _model_card(facts):
    """A model card in Markdown, from the contents of `metadata.json`."""
    sections = {
        "Intended use": [facts.get("intended_use", _USE)],
        "Data and training": _data(facts),
        "Protocol and scores": _scores(facts),
        "Unknown images": _acceptance(facts),
        "Files and preparation": _preparation(facts),
        "Limits": _LIMITS,
    }
    lines = [*_front_matter(facts), "# Model card", ""]
    for title, section in sections.items():
        lines += [f"## {title}", "", *section, ""]
    return "\n".join(lines)


def _front_matter(facts):
    """YAML that hubs of models read, each value in JSON's notation."""
    values: dict[str, Any] = {
        "library_name": "keras",
        "pipeline_tag": "image-feature-extraction",
        "tags": _TAGS,
    }
    if facts.get("license"):
        values["license"] = facts["license"]
    scores, recipe = facts.get("scores", {}), facts.get("recipe", {})
    metrics: list[dict[str, Any]] = [
        {"type": name, "name": name, "value": scores[name]}
        for name in _SCORES[:-1]
        if name in scores
    ]
    if metrics and "lower_map_at_r" in scores:
        ends = [scores["lower_map_at_r"], scores["upper_map_at_r"]]
        metrics[0]["args"] = {"confidence": 0.95, "interval": ends}
    if metrics:
        kind = recipe.get("dataset", "not stated")
        name = Path(str(recipe.get("data_dir") or kind)).stem
        result = {
            "task": {"type": values["pipeline_tag"], "name": "Image retrieval"},
            "dataset": {"type": kind, "name": name, "split": "test"},
            "metrics": metrics,
        }
        name = facts.get("run", "encoder")
        values["model-index"] = [{"name": name, "results": [result]}]
    lines = [f"{name}: {json.dumps(one)}" for name, one in values.items()]
    return ["---", *lines, "---", ""]


def _data(facts):
    recipe = facts.get("recipe", {})
    if not recipe:
        return ["Not stated."]
    lines = [f"Data set `{recipe.get('dataset', 'not stated')}`."]
    lines += [f"- {x}: {recipe[x]}" for x in _SETTINGS if x in recipe]
    if "run" in facts:
        lines.append(f"- run: {facts['run']}")
    if "command" in facts:
        lines += ["", "Made by:", "", "```bash", facts["command"], "```"]
    return lines


def _scores(facts):
    scores = facts.get("scores", {})
    shown = {name: scores[name] for name in _SCORES if name in scores}
    if not shown:
        return ["Not measured."]
    lines = [_PROTOCOL, "", "| score | value |", "| --- | --- |"]
    for name, value in shown.items():
        text = f"{value:.4f}" if isinstance(value, float) else str(value)
        if f"lower_{name}" in scores:
            ends = (scores[f"{end}_{name}"] for end in ("lower", "upper"))
            text += " ({:.4f} to {:.4f})".format(*ends)
        lines.append(f"| {name} | {text} |")
    if "map_at_r_of_format" in facts:
        text = f"MAP@R with this file: {facts['map_at_r_of_format']:.4f}."
        if lost := facts.get("map_at_r_lost"):
            # z: no sign of a negative zero.
            text += (
                f" Lost to Keras: {lost['difference']:z.4f} "
                f"({lost['low']:z.4f} to {lost['high']:z.4f})."
            )
        times = [facts[f"milliseconds_of_{x}"] for x in ("format", "keras")]
        text += " One image at a time: {:.1f} ms; with Keras {:.1f} ms."
        lines += ["", text.format(*times)]
    return lines


def _acceptance(facts):
    """What the match threshold accepts, of known and of unknown images."""
    config = facts.get("match_threshold")
    if not config:
        return ["No match threshold: every image gets neighbors."]
    match = MatchThreshold.from_config(config)
    lines = [f"A neighbor within {match.distance:.4f} is a match."]
    return [*lines, "", match.table()] if match.acceptance else lines


def _preparation(facts):
    height, width, channels = facts["image_shape"]
    fraction = facts["crop_fraction"]
    crop = "resized as a whole"
    if fraction is not None:
        crop = (
            f"cropped to the centered square of {fraction:.4g} of the shorter "
            "side and resized (bilinear, no anti-aliasing)"
        )
    lines = [
        f"Images are turned upright (Exif), {crop} to {height} x {width} "
        f"pixels of {channels} channels in [0, 255]; the embedding has "
        f"{facts['embedding_size']} numbers, compared by Euclidean distance.",
    ]
    if "gallery_size" in facts:
        lines += ["", f"The gallery holds {facts['gallery_size']} images."]
    if "largest_difference" in facts:
        text = (
            "Largest distance to the embeddings of Keras, on "
            f"{facts['compared_images']} images: "
            f"{facts['largest_difference']:.1e}."
        )
        lines += ["", text]
    return lines
