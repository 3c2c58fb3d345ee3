"""What training gained over doing nothing, in one sentence.

The step that was kept is compared with the better of the backbone's raw
features and their learned whitening, image by image on the same test classes.
"""

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from training.recipes.recipe import named
from training.runs.command_line import command_of
from training.runs.run_directory import RunDirectory

DO_NOTHING = {"raw": "raw features", "whitened": "whitened features"}
# Poolings of raw features, as settings.
RAW: dict[str, dict[str, Any]] = {
    "average": {"pooling": "gap"},
    "GeM 3": {"pooling": "gem"},
    "GeM 5": {"pooling": "gem", "pooling_arguments": {"power": 5.0}},
    "maximum": {"pooling": "gmp"},
}
# Settings on which features that are not trained depend.
UNTRAINED = (
    *("data_dir", "data_arguments", "corrupt_images", "decisions"),
    *("crop_size", "resize", "backbone", "backbone_weights", "frozen"),
    *("embedding_size", "classes_per_batch", "seed"),
)


def compared(
    queries: Any, raw: Mapping[str, Any], classes: Any
) -> dict[str, Any] | None:
    """Compares a run with the better of raw and whitened features.

    `queries` is the MAP@R of each test image, `raw` that of `raw_scores`, whose
    better row validation classes choose, and `classes` are those of the images.
    Returns the `paired_difference`, and what it is `against`; None where one
    class is all there is.
    """
    from keras_gsp.metrics import paired_difference

    if len(np.unique(classes)) < 2:
        return None
    better = better_untrained(raw)
    gain = paired_difference(queries, raw["queries"][better], classes)
    return {"against": DO_NOTHING[better], **gain}


def better_untrained(raw: Mapping[str, Any]) -> str:
    """Returns `raw` or `whitened`, whichever validates better."""
    scores = {"raw": raw[raw["best"]], "whitened": raw["whitened"]}
    return max(scores, key=lambda name: scores[name]["val_map_at_r"])


def has_gained(scores: Mapping[str, Any]) -> bool:
    """Whether a finished run is better than untrained features, for sure."""
    gain = scores["gain"]
    return bool(scores["kept_step"] and gain is not None and gain["low"] > 0)


def interval(gain: Mapping[str, Any]) -> str:
    """Formats a difference of scores in points: `+1.3 [+0.5, +2.0]`."""
    names = "difference", "low", "high"
    # A rounded -0.0 becomes 0.0.
    points = (round(100 * gain[name], 1) + 0.0 for name in names)
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*points)


def significance(gain: Mapping[str, Any]) -> str:
    """Says whether training's gain excludes zero, and how large it is."""
    text = f"points of MAP@R over the {gain['against']}"
    if gain["low"] > 0:
        return f"Training gained {interval(gain)} {text}."
    if gain["high"] < 0:
        return f"Training lost: {interval(gain)} {text}."
    return f"Training made no significant difference: {interval(gain)} {text}."


def verdict(scores: Mapping[str, Any]) -> str:
    """Says what a finished run gained, from its `scores.json`."""
    raw, kept = scores["raw"], scores["kept_step"]
    best, white = raw[raw["best"]], raw["whitened"]
    text = (
        f"MAP@R of the test classes: raw features {best['map_at_r']:.3f} "
        f"({raw['best']}), whitened {white['map_at_r']:.3f}, this run "
        f"{scores['map_at_r']:.3f} (step {kept} of {scores['steps']}); of the "
        f"validation classes: raw {best['val_map_at_r']:.3f}, whitened "
        f"{white['val_map_at_r']:.3f}, this run {scores['val_map_at_r']:.3f}"
    )
    if not scores["steps"]:
        return f"{text}. Nothing was trained."
    if not kept:
        text += ". Training did not help: the encoder of step 0 is kept."
    elif scores["gain"] is None:
        return f"{text}. One test class allows no comparison."
    else:
        text += f". {significance(scores['gain'])}"
    if has_gained(scores):
        return text
    return f"{text} Stay with the {DO_NOTHING[better_untrained(raw)]}."


def untrained_command(directory: RunDirectory, scores: dict) -> str:
    """Returns the commands that export the better untrained features."""
    recipe, raw = directory.read_recipe(), scores["raw"]
    is_raw = better_untrained(raw) == "raw"
    chosen = RAW[raw["best"]] | {
        "steps": 0,
        "projection_start": "random" if is_raw else "learned",
    }
    kept = {setting: getattr(recipe, setting) for setting in UNTRAINED}
    plain = named(recipe.dataset).settings
    kept = {k: value for k, value in kept.items() if value != plain[k]}
    run = directory.path.with_name(f"{directory.path.name}-untrained")
    place = {"runs": run.parent, "name": run.name}
    export = shlex.join(["python", "-m", "training.export", str(run)])
    return f"  {command_of(recipe.dataset, place | kept | chosen)}\n  {export}"
