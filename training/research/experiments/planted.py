"""How many planted wrong labels and copies does `gsp.retrieval.suspects` find?

    python -m training.research.experiments.planted --data-dirs birds.zip emoji.zip --backbone-weights FILE

Features of a frozen MobileNetV2, averaged, whitened by PCA to `size`. Planted, one
kind at a time: wrong labels, drawn from all other classes or from the five most
similar ones; copies with the label of their original, encoded again (JPEG, quality
50) or also mirrored and cropped to nine tenths; classes divided in two at random.
Precision is the share of what was found that was planted: what a collection had
wrong before counts against it. In %, means over seeds.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from training.research.experiments import whitening
from training.research.report import Table, run_measurement

SIMILAR = 5
KINDS = {
    "any": "wrong label, any class",
    "similar": "wrong label, similar class",
    "encoded": "copy, encoded again",
    "mirrored": "copy, mirrored and cropped",
    "divided": "class divided in two",
}


@dataclass(frozen=True, kw_only=True)
class Settings(whitening.Settings):
    """Data, backbone and what is planted."""

    share: float = 0.05
    """Share of the images, or of the classes, that is planted."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of what is drawn."""

    SMALL = {"pixels": 32, "size": 4, "seeds": (0,)}


def copies(paths: Any, chosen: np.ndarray, folder: Path) -> list[str]:
    """Files with copies of the chosen images, mirrored ones last."""
    from PIL import Image, ImageOps

    found: dict[str, list[str]] = {"encoded": [], "mirrored": []}
    for number in chosen:
        image = Image.open(paths[number]).convert("RGB")
        width, height = (0.9 * side for side in image.size)
        mirrored = ImageOps.mirror(image).crop((0, 0, width, height))
        for name, one in (("encoded", image), ("mirrored", mirrored)):
            file = folder / f"{name}{number}.jpg"
            one.save(file, quality=50)
            found[name].append(str(file))
    return found["encoded"] + found["mirrored"]


def scored(found: Any, planted: Any) -> dict[str, float]:
    """Precision and recall, in %, of two sets."""
    found, planted = set(found), set(planted)
    hits = 100.0 * len(found & planted)
    return {
        "precision": hits / max(len(found), 1),
        "recall": hits / len(planted),
    }


def averaged(settings: Settings, paths: Any) -> np.ndarray:
    """Averaged features of files."""
    maps = whitening.feature_maps(settings, paths)
    return whitening.pooled_rows(maps)["average"]


def found_of(
    settings: Settings, images: Any, rows: np.ndarray, seed: int
) -> dict[str, dict]:
    """Precision and recall of each of `KINDS`, with one seed."""
    rng = np.random.default_rng(seed)
    labels, size = np.asarray(images.labels), len(images)
    count = max(1, round(settings.share * size))
    chosen = rng.choice(size, count, replace=False)
    with tempfile.TemporaryDirectory() as folder:
        files = copies(images.paths, chosen, Path(folder))
        rows = np.concatenate([rows, averaged(settings, files)])
    layer = gsp.layers.Whitening(settings.size, shrinkage=1.0)
    layer.adapt(rows[:size])
    rows = keras.ops.convert_to_numpy(layer(rows))
    own = rows[:size]
    means = np.stack([own[labels == c].mean(0) for c in np.unique(labels)])
    near = means @ means.T
    np.fill_diagonal(near, -np.inf)
    nearest = np.argsort(-near, axis=1)
    found = {}
    # The last one is the class itself.
    for kind, last in (("any", -1), ("similar", SIMILAR)):
        some = nearest[:, :last]
        wrong = labels.copy()
        drawn = rng.integers(some.shape[1], size=count)
        wrong[chosen] = some[labels[chosen], drawn]
        suspects = gsp.retrieval.suspects(own, wrong)
        found[kind] = scored(suspects.wrong_labels.tolist(), chosen.tolist())
    for kind, start in (("encoded", size), ("mirrored", size + count)):
        both = np.concatenate([own, rows[start : start + count]])
        of_both = np.concatenate([labels, labels[chosen]])
        twins = gsp.retrieval.suspects(both, of_both).duplicates.tolist()
        copied = zip(chosen.tolist(), range(size, size + count), strict=True)
        found[kind] = scored(map(tuple, map(sorted, twins)), copied)
    num_classes = images.num_classes
    halved = max(1, round(settings.share * num_classes))
    divided = rng.choice(num_classes, halved, replace=False).tolist()
    pairs = [(label, num_classes + n) for n, label in enumerate(divided)]
    half = labels.copy()
    for label, new in pairs:
        own_places = rng.permutation(np.flatnonzero(labels == label))
        half[own_places[::2]] = new
    similar = gsp.retrieval.suspects(own, half).same_classes
    found["divided"] = scored(map(tuple, map(sorted, similar)), pairs)
    return found


def measure(settings: Settings) -> dict:
    """Precision and recall of each kind, by data set."""
    found: dict[str, Any] = {}
    for path in settings.data_dirs:
        images = gsp.data.image_folder(str(path))
        rows = averaged(settings, images.paths)
        runs = [found_of(settings, images, rows, s) for s in settings.seeds]
        found[path.stem] = {
            kind: {
                key: float(np.mean([run[kind][key] for run in runs]))
                for key in runs[0][kind]
            }
            for kind in KINDS
        }
    return found


def tables(results: dict) -> list[Table]:
    """One table, precision and recall of each data set."""
    headings = [f"{s}: {k}" for s in results for k in ("precision", "recall")]
    rows = [
        [
            title,
            *(f"{x:.0f}" for s in results.values() for x in s[kind].values()),
        ]
        for kind, title in KINDS.items()
    ]
    return [Table(["planted", *headings], rows, 1)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
