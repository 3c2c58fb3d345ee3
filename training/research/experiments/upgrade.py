r"""A new encoder on an old gallery, before its items are embedded again.

    python -m training.research.experiments.upgrade --data-dirs emoji.zip birds50.zip \
        --weights mobilenet_v2_035_imagenet.weights.h5 mobilenet_v2_100_imagenet.weights.h5

`gsp.retrieval.upgrade` on frozen features of MobileNetV2 (alpha 0.35; the
backbone changes to alpha 1.0) under a trained projection of 128 numbers, and on
`glyphs`, with GSP on the network of single characters. Half of the classes train
both encoders and are the sample that fits the maps; the other half is the
gallery, and each of its images a query. MAP@R:

- old: old queries, old items. raw: new queries, old items, as they are.
- mapped: new queries, old items, by the map that was chosen (`map`). cost:
  mapped less old.
- half: half of the items, drawn at random, are embedded anew.
- new: new queries, new items.

Differences are paired, query by query, with 95 % intervals over classes. The
second table asks the same of other indexes. "Compatible" trains the new encoder
with `gsp.losses.DistillationLoss`, the old encoder as teacher: `raw` then needs no
map, and `new` shows what it costs.

To embed first the items whose mapped neighbors are least or most certain was not
better than a random order: in ten comparisons at half from -1.2 to +0.2 points,
no interval above zero (commit e58e5e0). The package has no such order.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import keras_gsp as gsp
from keras_gsp.metrics.paired_difference import paired_difference
from keras_gsp.retrieval import ExactIndex, Upgrade
from keras_gsp.retrieval.index.search_recall import own_map_at_r
from training.pictures.palette import picture
from training.research.experiments.frozen_heads import (
    Features,
    FrozenSettings,
    embedded,
    features_of,
    trained_encoder,
)
from training.research.report import Table, run_measurement
from training.research.study_record import interval

CHANGES: dict[str, dict[str, Any]] = {
    "another seed": {"seed": 1},
    "another seed, compatible": {"seed": 1, "is_taught": True},
    "another loss": {"seed": 2, "loss": "MS"},
    "128 -> 64 numbers": {"seed": 3, "size": 64},
    "alpha 0.35 -> 1.0": {"seed": 4, "is_wide": True},
}
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, kw_only=True)
class Settings(FrozenSettings):
    """Options of this experiment."""

    SMALL = {**FrozenSettings.SMALL, "steps": 5}


def measure(settings: Settings) -> dict[str, Any]:
    """Upgrades each gallery to each new encoder."""
    found: dict[str, Any] = {"changes": [], "engines": []}
    for features in features_of(settings, (0.35, 1.0)):
        known = features.split()
        narrow, wide = slice(features.width), slice(features.width, None)
        old = _trained(settings, features, known, channels=narrow)
        for name, change in CHANGES.items():
            own = dict(change)
            is_wide = own.pop("is_wide", False)
            if is_wide and features.width is None:
                continue
            channels = wide if is_wide else narrow
            if own.pop("is_taught", False):
                own["teacher"] = old
            new = _trained(settings, features, known, channels=channels, **own)
            row, upgraded, queries = _row(features, known, old, new)
            found["changes"].append(
                {"data": features.name, "change": name, **row}
            )
            print(features.name, name, row["scores"], flush=True)
            if name == "another seed":
                found["engines"] += [
                    {"data": features.name, **one}
                    for one in _engines(upgraded, queries)
                ]
    return found


def _trained(settings, features, known, **own):
    if features.name == "glyphs":
        own["pooling"] = gsp.layers.GeneralizedSumPooling(
            64, 0.1, inverse_temperature=80.0
        )
    return trained_encoder(features, known, steps=settings.steps, **own)


def _row(features: Features, known: Any, old: Any, new: Any) -> Any:
    maps, labels = features.maps, features.labels
    gallery = maps[~known], labels[~known]
    index = ExactIndex.from_encoder(old, gallery, batch_size=512)
    sample = maps[known], labels[known]
    upgraded = gsp.retrieval.upgrade(index, old, new, sample, batch_size=512)
    queries, ids = embedded(new, gallery[0]), np.arange(len(index))
    own = embedded(old, gallery[0])

    def scored(one, asked=queries):
        return own_map_at_r(one, asked, gallery[1], ids)

    rows = {"old": scored(index, own), "mapped": scored(upgraded)}
    if queries.shape == own.shape:
        rows["raw"] = scored(index)
    order = np.random.default_rng(0).permutation(ids)
    curve = []
    for share in SHARES[1:]:
        moved = order[: int(share * len(ids))]
        into = ExactIndex(queries[moved], gallery[1][moved], moved)
        row = scored(Upgrade(index, into, upgraded.space_map))
        curve.append(float(np.nanmean(row)))
        if share == 0.5:
            rows["half"] = row
    rows["new"] = scored(ExactIndex(queries, gallery[1]))
    result = {
        "scores": {name: float(np.nanmean(row)) for name, row in rows.items()},
        "cost": paired_difference(rows["mapped"], rows["old"], gallery[1]),
        "gain": paired_difference(rows["new"], rows["mapped"], gallery[1]),
        "curve": curve,
        "certificate": upgraded.certificate,
    }
    return result, upgraded, (queries, gallery[1], order)


def _engines(upgraded: Any, asked: Any) -> Iterator[dict[str, Any]]:
    """MAP@R of the mapped and of the half upgraded gallery by engine."""
    queries, labels, order = asked
    gallery, half = upgraded.old.gallery, order[: len(order) // 2]
    with tempfile.TemporaryDirectory() as folder:

        def milvus(name, *items):
            index = gsp.retrieval.MilvusIndex(f"{folder}/gallery.db", name)
            index.upsert(*items)
            index.build()
            return index

        def faiss(name, *items):
            return gsp.retrieval.FaissIndex(*items, factory="HNSW32")

        kinds = {"Exact": lambda name, *items: ExactIndex(*items)}
        kinds |= {"Faiss, HNSW32": faiss, "Milvus, HNSW": milvus}
        for kind, made in kinds.items():
            try:
                old = made("old", gallery.embeddings, labels, gallery.ids)
                new = made("new", queries[half], labels[half], half)
            except ImportError:
                continue
            scores = []
            for index in (ExactIndex(), new):
                both = Upgrade(old, index, upgraded.space_map)
                row = own_map_at_r(both, queries, labels, gallery.ids)
                scores.append(float(np.nanmean(row)))
            yield {"engine": kind, "mapped": scores[0], "half": scores[1]}


def tables(results: dict) -> list[Table]:
    """One row a change, then one an engine."""
    names = ("old", "raw", "mapped", "half", "new")
    rows = [
        [
            row["data"],
            row["change"],
            row["certificate"]["map"],
            *(
                f"{100 * row['scores'][n]:.1f}" if n in row["scores"] else ""
                for n in names
            ),
            interval(row["cost"], 1),
        ]
        for row in results["changes"]
    ]
    engines = [
        [row["data"], row["engine"]]
        + [f"{100 * row[name]:.1f}" for name in ("mapped", "half")]
        for row in results["engines"]
    ]
    return [
        Table(("data", "change", "map", *names, "cost"), rows, 3),
        Table(("data", "index", "mapped", "half"), engines, 2),
    ]


def draw(path: Path, results: dict) -> None:
    """MAP@R against the share of items that were embedded anew."""
    rows = results["changes"]
    columns = min(4, len(rows))
    lines = -(-len(rows) // columns)
    size = (3.4 * columns, 2.8 * lines)
    with picture(path, lines, columns, figsize=size, sharex=True) as axes:
        for axis, row in zip(axes.flat, rows, strict=False):
            scores = row["scores"]
            values = [scores["mapped"], *row["curve"]]
            axis.plot(SHARES, values, marker=".", label="upgraded")
            axis.axhline(scores["old"], color="0.6", lw=1, label="old encoder")
            axis.set_title(f"{row['data']}: {row['change']}", fontsize=9)
        for axis in axes.flat[len(rows) :]:
            axis.set_axis_off()
        axes.flat[0].legend(fontsize=8)
        axes.flat[0].figure.supxlabel("share of items embedded anew")
        axes.flat[0].figure.supylabel("MAP@R")


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
