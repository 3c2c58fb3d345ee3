r"""Shortlists with a guarantee: their coverage, their length, what breaks them.

    python -m training.research.experiments.guarantee --data-dirs emoji.zip birds50.zip \
        --weights mobilenet_v2_035_imagenet.weights.h5

`gsp.retrieval.RetrievalGuarantee` on frozen features of MobileNetV2 (alpha
0.35) and on `glyphs`, under heads with average pooling (gap) and with GSP that
half of the classes train. `raw`, for a data set of few classes, are 128 principal
components of averaged features, for which all classes are new. Each of 200 splits draws anew which of the other classes
calibrate and which are the gallery, with half of a class's images as gallery
and half as queries. A fifth of the gallery's classes is left out: their
queries are unknown.

- covered: splits in which one query of one random class is covered, with the
  95 % binomial interval around the chosen coverage; and the share of all
  queries of all splits.
- length: mean number of items in a list, and of the gallery.
- declined: share of known queries that are declined, at a false-alarm rate of
  5 %, and of unknown ones.

With few classes the coverage is above the chosen one, by at most 2 / (C + 1), and
too few leave its row out. The second table calibrates
on all drawings of held-out emoji and asks with those of one set: another
domain has another coverage.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import keras_gsp as gsp
from keras_gsp.retrieval import ExactIndex
from keras_gsp.retrieval.guarantee import class_quantile, class_scores
from training.pictures.palette import picture
from training.research.experiments.frozen_heads import (
    Features,
    FrozenSettings,
    embedded,
    features_of,
    trained_encoder,
)
from training.research.report import Table, run_measurement

COVERAGES = 0.8, 0.9, 0.95, 0.99
FALSE_ALARMS = 0.05
# With fewer, halves of the classes could not calibrate.
FEW_CLASSES = 60


@dataclass(frozen=True, kw_only=True)
class Settings(FrozenSettings):
    """Options of this experiment."""

    splits: int = 200
    """Random splits of the classes."""

    SMALL = {**FrozenSettings.SMALL, "steps": 3, "splits": 3}


def measure(settings: Settings) -> dict[str, Any]:
    """Splits each data set many times."""
    sets = features_of(settings, (0.35,))
    rows: list[dict[str, Any]] = []
    shifts: list[dict[str, Any]] = []
    for features in sets:
        for name, labels, embeddings, styles in _spaces(settings, features):
            one = {"data": features.name, "space": name}
            found = [
                _split(embeddings, labels, seed)
                for seed in range(settings.splits)
            ]
            rows += [one | row for row in _summary(found)]
            print(one, rows[-1], flush=True)
            if name == "gap" and features.name in ("emoji", "clusters"):
                shifts = list(_shifts(embeddings, labels, styles, settings))
    return {"rows": rows, "shifts": shifts}


def _spaces(settings: Settings, features: Features) -> Iterator[Any]:
    """Name, labels, embeddings and styles of the classes to split."""
    maps = features.maps
    if len(np.unique(features.labels)) < FEW_CLASSES:
        raw = np.asarray(maps[:]).mean((1, 2), "float32")
        raw /= np.linalg.norm(raw, axis=1, keepdims=True)
        raw -= raw.mean(axis=0)
        directions = np.linalg.eigh(raw.T @ raw)[1][:, -128:]
        yield "raw", features.labels, raw @ directions, features.styles
        return
    known = features.split()
    poolings = {
        "gap": None,
        "gsp": gsp.layers.GeneralizedSumPooling(
            64, 0.3, inverse_temperature=5.0
        ),
    }
    for name, pooling in poolings.items():
        encoder = trained_encoder(
            features, known, steps=settings.steps, pooling=pooling
        )
        new = ~known
        rows = embedded(encoder, maps[new])
        yield name, features.labels[new], rows, features.styles[new]


def _drawn(labels: Any, seed: int) -> Any:
    """Masks of calibration, gallery, known and unknown queries."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.unique(labels))
    half = len(names) // 2
    unknown = names[half : half + max(1, half // 5)]
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    is_item = np.isin(np.arange(len(labels)), order[::2])
    is_calibration = np.isin(labels, names[:half])
    is_unknown = np.isin(labels, unknown)
    is_known = ~is_calibration & ~is_unknown
    return is_calibration, is_known & is_item, is_known & ~is_item, is_unknown


def _split(embeddings: Any, labels: Any, seed: int, style: Any = None) -> dict:
    """One split: coverage, length and declined queries."""
    calibration, items, known, unknown = _drawn(labels, seed)
    if style is not None:
        known = known & style
    index = ExactIndex(embeddings[items], labels[items])
    classes, right, nearest = class_scores(
        index, embeddings[calibration], labels[calibration], seed
    )
    distances = np.sqrt(_squares(embeddings[known], embeddings[items]))
    is_same = labels[known][:, None] == labels[items]
    own = np.where(is_same, distances, np.inf).min(axis=1)
    has_own = np.isfinite(own)
    rng = np.random.default_rng(seed)
    name = rng.choice(np.unique(labels[known][has_own]))
    one = rng.choice(np.flatnonzero((labels[known] == name) & has_own))
    rows = []
    for coverage in COVERAGES:
        try:
            radius = class_quantile(right, classes, coverage, "coverage")
        except ValueError:
            continue
        rows.append(
            {
                "coverage": coverage,
                "one": bool(own[one] <= radius),
                "all": float(np.mean(own[has_own] <= radius)),
                "length": float(np.mean(np.sum(distances <= radius, axis=1))),
            }
        )
    found: dict[str, Any] = {"rows": rows, "items": int(items.sum())}
    try:
        limit = class_quantile(
            nearest, classes, 1 - FALSE_ALARMS, "false_alarm_rate"
        )
    except ValueError:
        return found
    far = np.sqrt(_squares(embeddings[unknown], embeddings[items]))
    found["alarms"] = float(np.mean(distances.min(axis=1) > limit))
    found["detected"] = float(np.mean(far.min(axis=1) > limit))
    return found


def _squares(queries, items):
    squares = np.square(queries).sum(1)[:, None] + np.square(items).sum(1)
    return np.maximum(squares - 2 * queries @ items.T, 0)


def _summary(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each coverage that all splits could calibrate."""
    fewest = min((one["rows"] for one in found), key=len)
    for place, first in enumerate(fewest):
        rows = [one["rows"][place] for one in found]
        coverage, count = first["coverage"], len(rows)
        low, high = stats.binom.interval(0.95, count, coverage)
        row = {
            "coverage": coverage,
            "covered": int(sum(one["one"] for one in rows)),
            "splits": count,
            "low": int(low),
            "high": int(high),
            "gallery": float(np.mean([one["items"] for one in found])),
        }
        for name in ("all", "length"):
            row[name] = float(np.mean([one[name] for one in rows]))
        for name in ("alarms", "detected"):
            if all(name in one for one in found):
                row[name] = float(np.mean([one[name] for one in found]))
        yield row


def _shifts(embeddings, labels, styles, settings) -> Iterator[dict[str, Any]]:
    """Coverage of queries of one set of drawings alone."""
    for style in np.unique(styles):
        found = [
            _split(embeddings, labels, seed, styles == style)
            for seed in range(max(2, settings.splits // 20))
        ]
        for row in _summary(found):
            if row["coverage"] == 0.9:
                yield {"set": style, "all": row["all"]}


def tables(results: dict) -> list[Table]:
    """One row a space and coverage, then one a set of drawings."""
    rows = [
        [
            row["data"],
            row["space"],
            f"{100 * row['coverage']:.0f}",
            f"{row['covered']} of {row['splits']}",
            f"{row['low']}-{row['high']}",
            f"{100 * row['all']:.1f}",
            f"{row['length']:.1f} of {row['gallery']:.0f}",
            *(
                f"{100 * row[name]:.1f}" if name in row else ""
                for name in ("alarms", "detected")
            ),
        ]
        for row in results["rows"]
    ]
    first = ("data", "space", "coverage %", "covered", "binomial interval")
    headings = (*first, "all queries %", "length", "declined %", "of unknown %")
    shifts = [
        [row["set"], f"{100 * row['all']:.1f}"] for row in results["shifts"]
    ]
    titles = ("queries of one set of emoji, gap", "covered % (chosen: 90)")
    return [Table(headings, rows, 2), Table(titles, shifts)]


def draw(path: Path, results: dict) -> None:
    """Share covered and mean length against the chosen coverage."""
    names = list(dict.fromkeys(row["data"] for row in results["rows"]))
    size = (3.6 * len(names), 5.6)
    with picture(path, 2, len(names), figsize=size, sharex=True) as axes:
        for column, name in enumerate(names):
            top, below = axes[0, column], axes[1, column]
            for space in ("raw", "gap", "gsp"):
                rows = [
                    r
                    for r in results["rows"]
                    if (r["data"], r["space"]) == (name, space)
                ]
                chosen = [row["coverage"] for row in rows]
                top.plot(chosen, [r["all"] for r in rows], "o-", label=space)
                below.plot(chosen, [r["length"] for r in rows], "o-")
            top.plot([0.8, 1], [0.8, 1], color="0.6", lw=1)
            top.set_title(name)
            below.set_yscale("log")
            below.set_xlabel("chosen coverage")
        axes[0, 0].set_ylabel("share covered")
        axes[1, 0].set_ylabel("items in a list")
        axes[0, 0].legend()


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
