"""Puts a report together: what runs hold, as one page."""

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from training.browsing.page_parts import rendered_page
from training.reports.chosen_queries import chosen_queries, shown_search
from training.reports.class_scores import (
    class_rows,
    confused_pairs,
    confusion_picture,
)
from training.reports.embedding_map import MapMethod, embedding_map
from training.reports.near_duplicates import (
    DIFFERENCE,
    SIDE,
    near_duplicates,
)
from training.reports.page_pictures import picture_text, sheet_texts, shrunk
from training.reports.pooling_maps import prototype_patches
from training.reports.run_reading import (
    REPORT_MARK,
    ReadRun,
    read_runs,
    read_settings,
)
from training.reports.score_table import (
    Method,
    difference_rows,
    methods_of,
    score_rows,
    written_score,
)
from training.reports.scored_images import (
    ScoredImages,
    scored_images,
    whole_classes,
)
from training.reports.searched import Searched, search_all

PICTURE_SIDE = 112
"""Pixels of the pictures of queries and neighbors."""
MOST_SHEET_BYTES = 4_000_000
"""Room for the pictures of the map."""
DETAILED = 3
"""Runs whose neighbors, maps and prototypes are shown."""


@dataclass(frozen=True)
class ReportSettings:
    """What a report holds.

    Args:
        images: Images looked at, about.
        points: Points of a map, about.
        map: How embeddings are laid out beside PCA.
    """

    images: int = 10_000
    points: int = 2_000
    map: MapMethod = "pca"


@dataclass
class Report:
    """A page, and what other files are made from.

    Args:
        html: The page.
        notes: Sentences on what is missing.
        searched: Run's name -> its search.
    """

    html: str
    notes: list[str]
    searched: dict[str, Searched] = field(default_factory=dict)


def make_report(
    paths: tuple[Path, ...],
    settings: ReportSettings,
    say: Callable[[str], None] = lambda words: None,
) -> Report:
    """Reads runs and makes their page.

    Args:
        paths: Run directories.
        settings: What the page holds.
        say: Is told what is being done.

    Raises:
        ValueError: not one of the paths is a run.
    """
    runs, notes = read_runs(paths)
    if not runs:
        raise ValueError(
            "A report needs at least one run directory. Received: "
            + " ".join(notes)
        )
    methods = methods_of(runs)
    searched = _searches(runs, settings, say)
    detailed = _detailed(methods, searched, notes)
    data: dict[str, Any] = {"runs": list(detailed), "curves": _curves(methods)}
    page: dict[str, Any] = {
        "title": " · ".join(m.name for m in methods),
        "made": datetime.datetime.now().isoformat(" ", "minutes"),
        "runs": runs,
        "methods": methods,
        "settings": read_settings(runs),
        "data_sets": _data_sets(runs, searched),
        "scores": score_rows(methods, searched),
        "differences": difference_rows(methods, searched, notes),
        "detailed": list(detailed),
        "classes": [],
        "pairs": [],
    }
    if detailed:
        say("neighbors, maps and prototypes")
        page |= _details(detailed, settings, data, notes, runs)
    page["notes"] = notes + [
        f"{run.name}: {note}" for run in runs for note in run.notes
    ]
    return Report(_rendered(page, data), page["notes"], searched)


def _searches(runs, settings, say):
    """Embeds the images of every run that can, each data set read once."""
    import tensorflow as tf

    from training.runs.scoring import load_encoder

    read: dict[tuple, ScoredImages] = {}
    searched = {}
    for run in runs:
        if run.recipe is None or run.encoder is None:
            continue
        say(f"embedding the images of {run.name}")
        recipe = run.recipe
        key = (
            *(recipe.dataset, recipe.data_dir, recipe.source),
            *(recipe.train_classes, recipe.images_per_class),
            recipe.crop_size,
        )
        try:
            if key not in read:
                read[key] = scored_images(recipe, settings.images)
            encoder = load_encoder(run.encoder)
            searched[run.name] = search_all(encoder, read[key])
        except (ValueError, OSError, ImportError, tf.errors.OpError) as error:
            words = " ".join(str(error).split())
            run.notes.append(f"No image could be embedded: {words[:400]}")
            continue
        run.notes += read[key].notes
        _check_scores(run, searched[run.name])
    return searched


def _check_scores(run, searched):
    written = written_score(run, "map_at_r")
    if written is None or run.encoder.path != run.directory.path:
        return
    if any("looked at" in note for note in searched.images.notes):
        return
    found = float(np.nanmean(searched.by_query["map_at_r"]))
    if abs(found - written) > 1e-3:
        run.notes.append(
            f"scores.json says a MAP@R of {written:.4f}, the encoder gives "
            f"{found:.4f} on the images that are there now."
        )


def _detailed(methods, searched, notes):
    """The first run of each method, as far as they search the same images."""
    firsts = []
    for method in methods:
        names = [run.name for run in method.runs if run.name in searched]
        firsts += names[:1]
    kept: dict[str, Searched] = {}
    for name in firsts:
        one = searched[name]
        first = next(iter(kept.values()), one)
        if one.images.names != first.images.names:
            notes.append(
                f"{name} is scored on other images than {next(iter(kept))}: "
                "its neighbors and map are in a report of its own."
            )
        elif len(kept) < DETAILED:
            kept[name] = one
        else:
            notes.append(
                f"Neighbors, map and prototypes of {name} are left out: "
                f"there is room for {DETAILED} runs."
            )
    return kept


def _details(detailed, settings, data, notes, runs):
    """Adds everything that needs images; returns the page's tables."""
    images = next(iter(detailed.values())).images
    by_name = {run.name: run for run in runs}
    lists = chosen_queries(detailed)
    queries = sorted({query for one in lists for query in one["queries"]})
    data["lists"] = lists
    data["searches"] = [
        shown_search(one, queries, by_name[name].notes)
        for name, one in detailed.items()
    ]
    points = whole_classes(images.labels, settings.points)[: settings.points]
    if len(points) < len(images):
        notes.append(
            f"The map shows {len(points)} of {len(images)} images, whole "
            "classes drawn at random."
        )
    data["points"] = points.tolist()
    data["maps"] = _maps(detailed, points, settings, notes)
    tiles, duplicates = _small_pictures(images, points)
    data["sheet"] = sheet_texts(tiles, MOST_SHEET_BYTES)
    pairs = [confused_pairs(one) for one in detailed.values()]
    data["confusions"] = [confusion_picture(one) for one in detailed.values()]
    prototypes = _prototypes(detailed)
    shown = set(queries)
    for search in data["searches"]:
        for answer in search["queries"].values():
            shown.update(answer["neighbors"])
    for pair in (*duplicates["pairs"], *(p for one in pairs for p in one)):
        shown.update(pair["images"])
    pictures = _pictures(images, sorted(shown))
    data["pictures"] = pictures
    data["classes"] = list(images.images.class_names)
    names = images.names
    data["images"] = {
        int(image): [int(images.labels[image]), names[image]]
        for image in sorted(shown | set(points.tolist()))
    }
    return {
        "classes": class_rows(list(detailed.values())),
        "pairs": list(zip(detailed, pairs, strict=True)),
        "class_names": images.images.class_names,
        "labels": images.labels,
        "pictures": pictures,
        "duplicates": duplicates,
        "difference_limit": DIFFERENCE,
        "prototypes": prototypes,
        "lists": lists,
    }


def _maps(detailed, points, settings, notes):
    maps = []
    for method in dict.fromkeys(("pca", settings.map)):
        layouts = []
        for one in detailed.values():
            try:
                places, words = embedding_map(one.embeddings[points], method)
            except ImportError as error:
                notes.append(str(error))
                break
            layouts.append(
                {
                    "words": words,
                    "x": np.round(places[:, 0], 4).tolist(),
                    "y": np.round(places[:, 1], 4).tolist(),
                }
            )
        else:
            maps.append({"method": method, "layouts": layouts})
    return maps


def _small_pictures(images, points):
    """Tiles for the map, and near duplicates; one pass over the images."""
    side = 56 if len(points) <= 1_000 else 44
    chosen = np.isin(np.arange(len(images)), points)
    small, tiles, start = [], [], 0
    for pixels in images.batches():
        rows = chosen[start : start + len(pixels)]
        start += len(pixels)
        small.append(_square(pixels))
        if rows.any():
            tiles.append(shrunk(pixels[rows], side))
    duplicates = near_duplicates(np.concatenate(small), images.labels)
    return np.concatenate(tiles), duplicates


def _square(pixels):
    from PIL import Image

    return np.stack(
        [
            np.asarray(
                Image.fromarray(one).resize((SIDE, SIDE), Image.Resampling.BOX)
            )
            for one in pixels
        ]
    )


def _pictures(images, chosen):
    found: dict[int, str] = {}
    position = 0
    for pixels in images.batches(chosen):
        for one in shrunk(pixels, PICTURE_SIDE):
            found[chosen[position]] = picture_text(one)
            position += 1
    return found


def _prototypes(detailed):
    found = []
    for name, one in detailed.items():
        rows = prototype_patches(one)
        if rows is None:
            continue
        for row in rows:
            row["classes"] = [one.images.class_of(i) for i in row["images"]]
            row["pictures"] = [
                picture_text(shrunk(patch[None], 48)[0])
                for patch in row.pop("patches")
            ]
        found.append({"run": name, "rows": rows})
    return found


def _curves(methods: list[Method]):
    return [
        {
            "run": run.name,
            "method": number,
            "steps": [line["step"] for line in run.history],
            "values": {
                name: [line.get(name) for line in run.history]
                for name in dict.fromkeys(
                    name for line in run.history for name in line
                )
                if name != "step"
            },
        }
        for number, method in enumerate(methods)
        for run in method.runs
        if run.history
    ]


def _data_sets(runs: list[ReadRun], searched: dict[str, Searched]):
    """One row for each side of each data set."""
    rows = {}
    for run in runs:
        if run.name not in searched:
            continue
        splits = searched[run.name].images.splits
        for side in ("train", "validation", "test", "query", "gallery"):
            part = getattr(splits, side)
            if part is None:
                continue
            sizes = part.class_sizes
            rows[splits.name, side, len(part)] = {
                "name": splits.name,
                "side": side,
                "images": len(part),
                "classes": part.num_classes,
                "least": int(sizes.min()),
                "median": float(np.median(sizes)),
                "most": int(sizes.max()),
            }
    return list(rows.values())


def _rendered(page, data):
    from plotly.offline import get_plotlyjs

    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # No text of a data set may end the script element that holds it.
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return rendered_page(
        Path(__file__).parent / "templates" / "report.html",
        mark=REPORT_MARK,
        data=text,
        plotly=get_plotlyjs(),
        **page,
    )
