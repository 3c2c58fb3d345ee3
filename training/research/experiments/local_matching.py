"""Does matching local features re-rank better than the embedding alone?

    python -m training.research.experiments.local_matching --runs runs/RUN

GSP says which features count. Each image keeps the `k` features that its
encoder moves most mass of, as numbers or as the bits of their signs (`code`),
with the prototype that receives most of each. The first 100 images of a
ranking are ordered again by

    cosine of the embeddings + w * similarity of the two sets of features

The similarity of two sets is the mean cosine of each feature with its best
match in the other set, weighted by the moved mass; with `transport` matches
are an entropic transport plan between the two sets; with `same prototype` only
features of one prototype may match. k and w are the best on the validation
classes. Compared with query expansion and k-reciprocal re-ranking, which store
nothing but read the whole gallery.

With distractors, canvases that hold symbols but no letter are in the gallery
too.

Result: codes gain less than query expansion everywhere, and far less than
k-reciprocal re-ranking; to match only features of one prototype is worse than to
match freely, and harms photographs of birds. The package therefore has no local
re-ranking; `gsp.metrics` has the other two.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from training.datasets import glyphs
from training.pictures.palette import BLUE, picture
from training.recipes.data import load_splits
from training.research.report import (
    ExperimentSettings,
    markdown_table,
    run_experiment,
)
from training.runs.run_directory import RunDirectory
from training.runs.scoring import load_encoder

SHORTLIST = 100
SHARPNESS = 20.0
"""Inverse temperature of the plan between two sets."""
# (features as, match, same prototype)
VARIANTS: dict[str, tuple[str, str, bool]] = {
    "best match": ("numbers", "best", False),
    "best match, code": ("code", "best", False),
    "best match, code, same prototype": ("code", "best", True),
    "transport, code": ("code", "transport", False),
    "transport, code, same prototype": ("code", "transport", True),
}
LARGEST_GRAPH = 10_000
"""Gallery for which k-reciprocal distances are computed."""


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Which encoders, and what they keep of an image."""

    runs: tuple[Path, ...] = ()
    """Finished runs whose encoders end in GSP."""
    num_features: tuple[int, ...] = (8, 16, 32)
    weights: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    distractors: int = 20_000
    """Canvases without a letter, in the gallery of `glyphs`."""

    def small(self) -> "Settings":
        """Few features and distractors."""
        return replace(
            self, num_features=(4,), weights=(0.5, 1.0), distractors=50
        )


@dataclass(frozen=True)
class Items:
    """Embeddings (items, size), and the features that each item keeps.

    `features` (items, k, size), `mass` and `prototypes` (items, k), by falling
    mass.
    """

    embeddings: np.ndarray
    features: np.ndarray
    mass: np.ndarray
    prototypes: np.ndarray

    def first(self, count: int, form: str) -> "Items":
        """The `count` heaviest features, as unit vectors or signs."""
        kept = self.features[:, :count]
        kept = np.sign(kept) if form == "code" else kept
        norms = np.linalg.norm(kept, axis=-1, keepdims=True)
        mass = self.mass[:, :count]
        return Items(
            self.embeddings,
            kept / np.maximum(norms, 1e-12),
            mass / mass.sum(axis=1, keepdims=True),
            self.prototypes[:, :count],
        )

    def followed_by(self, other: "Items") -> "Items":
        """These items, then the others."""
        return Items(
            *(
                np.concatenate([mine, vars(other)[name]])
                for name, mine in vars(self).items()
            )
        )


def items_of(encoder: Any, images: Any, count: int) -> Items:
    """Embeds images and keeps `count` features of each."""
    from keras_gsp.retrieval.explanation import PrototypeParts

    parts = PrototypeParts(encoder)
    found = []
    for batch in images:
        features, _, embeddings = parts.model(batch, training=False)
        plan = np.asarray(parts.pooling.transport_plan(features))
        plan = plan.reshape(len(plan), -1, plan.shape[-1])
        features = np.asarray(features, "float32")
        features = features.reshape(*plan.shape[:2], -1)
        mass = plan.sum(axis=-1)
        kept = np.argsort(-mass, axis=1, kind="stable")[:, :count]
        found.append(
            (
                np.asarray(embeddings),
                np.take_along_axis(features, kept[..., None], axis=1),
                np.take_along_axis(mass, kept, axis=1),
                np.take_along_axis(plan.argmax(axis=-1), kept, axis=1),
            )
        )
    return Items(*(np.concatenate(one) for one in zip(*found, strict=True)))


def similarity(
    query: int, items: Items, others: np.ndarray, match: str, same: bool
) -> np.ndarray:
    """Similarity of an item's set of features to those of others."""
    cosines = np.einsum(
        "id,cjd->cij", items.features[query], items.features[others]
    )
    if same:
        own = items.prototypes[query][:, None]
        cosines *= own == items.prototypes[others][:, None, :]
    mine, theirs = items.mass[query], items.mass[others]
    if match == "best":
        forth = (cosines.max(axis=2) * mine).sum(axis=1)
        return (forth + (cosines.max(axis=1) * theirs).sum(axis=1)) / 2
    kernel = np.exp(SHARPNESS * (cosines - 1))
    left = np.ones_like(theirs)
    for _ in range(8):
        right = theirs / np.einsum("cij,ci->cj", kernel, left)
        left = mine / np.einsum("cij,cj->ci", kernel, right)
    return np.einsum("ci,cij,cj,cij->c", left, kernel, right, cosines)


def map_at_r(nearest: np.ndarray, labels: np.ndarray, queries: int) -> Any:
    """MAP@R of each query, from its first neighbors."""
    scores = np.empty(queries)
    for query in range(queries):
        count = int((labels == labels[query]).sum()) - 1
        right = labels[nearest[query, :count]] == labels[query]
        precision = np.cumsum(right) / np.arange(1, count + 1)
        scores[query] = (right * precision).mean()
    return scores


def rankings(embeddings: np.ndarray, queries: np.ndarray) -> tuple[Any, Any]:
    """First neighbors of the first items, without themselves, and cosines."""
    cosines = queries @ embeddings.T
    rows = np.arange(len(queries))
    cosines[rows, rows] = -np.inf
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :SHORTLIST]
    return order, np.take_along_axis(cosines, order, axis=1)


def reranked(
    items: Items, order: np.ndarray, match: str, same: bool
) -> np.ndarray:
    """Similarity of the sets of each query and its neighbors."""
    return np.stack(
        [
            similarity(query, items, others, match, same)
            for query, others in enumerate(order)
        ]
    )


def choices(settings: Settings, items: Items, labels: np.ndarray) -> dict:
    """Variant -> (k, w) with the best MAP@R on these items."""
    queries = len(labels)
    order, cosines = rankings(items.embeddings, items.embeddings)
    found = {}
    for name, (form, match, same) in VARIANTS.items():
        scores = {}
        for count in settings.num_features:
            kept = items.first(count, form)
            local = reranked(kept, order, match, same)
            for weight in settings.weights:
                again = _sorted(order, cosines + weight * local)
                scores[count, weight] = map_at_r(again, labels, queries).mean()
        found[name] = max(scores, key=lambda one: scores[one])
    return found


def _sorted(order, scores):
    places = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(order, places, axis=1)


def scored(
    items: Items, labels: np.ndarray, queries: int, chosen: dict
) -> dict[str, Any]:
    """Method -> scores of each query, k, w, bytes an item, milliseconds."""
    import keras_gsp as gsp

    mine = items.embeddings[:queries]
    order, cosines = rankings(items.embeddings, mine)
    size = items.features.shape[-1]
    found: dict[str, Any] = {
        "global": {"scores": map_at_r(order, labels, queries), "bytes": 0}
    }
    for name, (count, weight) in chosen.items():
        form, match, same = VARIANTS[name]
        kept = items.first(count, form)
        start = time.perf_counter()
        local = reranked(kept, order, match, same)
        seconds = time.perf_counter() - start
        each = size // 8 if form == "code" else 4 * size
        found[name] = {
            "scores": map_at_r(
                _sorted(order, cosines + weight * local), labels, queries
            ),
            "k": count,
            "w": weight,
            # A prototype's number and a mass in a byte each.
            "bytes": count * (each + 2),
            "milliseconds": 1000 * seconds / queries,
        }
    start = time.perf_counter()
    expanded = gsp.metrics.alpha_query_expansion(items.embeddings)
    seconds = time.perf_counter() - start
    again, _ = rankings(items.embeddings, expanded[:queries])
    found["query expansion"] = {
        "scores": map_at_r(again, labels, queries),
        "milliseconds": 1000 * seconds / len(expanded),
    }
    if len(items.embeddings) <= LARGEST_GRAPH:
        start = time.perf_counter()
        distances = gsp.metrics.k_reciprocal(items.embeddings)
        np.fill_diagonal(distances, np.inf)
        again = np.argsort(distances, axis=1, kind="stable")[:, :SHORTLIST]
        seconds = time.perf_counter() - start
        found["k-reciprocal"] = {
            "scores": map_at_r(again, labels, queries),
            "milliseconds": 1000 * seconds / len(distances),
        }
    return found


def measure(settings: Settings) -> dict:
    """Chooses on validation classes, scores the test classes once."""
    if not settings.runs:
        raise SystemExit("error: `--runs` must name a finished run.")
    rows = []
    for path in settings.runs:
        run = RunDirectory(path)
        recipe = run.read_recipe().with_(cache_features=False)
        encoder = load_encoder(run)
        splits = load_splits(recipe)
        if splits.validation is None:
            splits = splits.with_validation(
                recipe.validation_folds, recipe.validation_fold
            )
        most = max(settings.num_features)
        validation, test = (
            items_of(encoder, _batches(recipe, side, encoder), most)
            for side in (splits.validation, splits.test)
        )
        chosen = choices(settings, validation, splits.validation.labels)
        labels = splits.test.labels
        queries = len(labels)
        name = Path(recipe.data_dir or recipe.dataset).stem
        name += ", frozen" if recipe.frozen == "all" else ", fine-tuned"
        rows += _rows(name, scored(test, labels, queries, chosen), labels)
        if recipe.dataset == "glyphs" and settings.distractors:
            others = glyphs.distractors(settings.distractors)
            items = test.followed_by(
                items_of(
                    encoder,
                    np.array_split(others, 1 + len(others) // 128),
                    most,
                )
            )
            everyone = np.append(labels, np.full(len(others), -1))
            name += f", {settings.distractors:,} distractors"
            found = scored(items, everyone, queries, chosen)
            rows += _rows(name, found, labels)
    return {"rows": rows}


def _batches(recipe, images, encoder):
    from training.recipes.batches import evaluation_batches

    batches = evaluation_batches(recipe, images, encoder=encoder)
    return (pixels for pixels, _ in batches.as_numpy_iterator())


def _rows(data, found, labels):
    import keras_gsp as gsp

    rows = []
    plain = found["global"]["scores"]
    for method, facts in found.items():
        scores = facts.pop("scores")
        row = {"data": data, "method": method, "map_at_r": scores.mean()}
        if method != "global":
            gain = gsp.metrics.paired_difference(scores, plain, labels)
            ends = ("difference", "low", "high")
            row["gain"] = {end: gain[end] for end in ends}
        rows.append(row | facts)
    return rows


def table(results: dict) -> str:
    """One row for each method and gallery."""
    rows = []
    for row in results["rows"]:
        gain = row.get("gain")
        ends = ("difference", "low", "high")
        rows.append(
            [
                row["data"],
                row["method"],
                f"{100 * row['map_at_r']:.2f}",
                "{:+.2f} [{:+.2f}, {:+.2f}]".format(
                    *(100 * gain[end] for end in ends)
                )
                if gain
                else "",
                row.get("k", ""),
                row.get("w", ""),
                row.get("bytes", 0),
                f"{row['milliseconds']:.2f}" if "milliseconds" in row else "",
            ]
        )
    headings = (
        *("gallery", "method", "MAP@R %", "gain", "k", "w"),
        *("more bytes an item", "ms a query"),
    )
    return markdown_table(headings, rows, num_left=2)


def draw(path: Path, results: dict) -> None:
    """Draws the gain of each method over the embedding alone."""
    galleries = list(dict.fromkeys(row["data"] for row in results["rows"]))
    size = (6.5 * len(galleries), 4)
    with picture(path, 1, len(galleries), figsize=size) as axes:
        for axis, gallery in zip(axes[0], galleries, strict=True):
            own = [
                row
                for row in results["rows"]
                if row["data"] == gallery and "gain" in row
            ]
            gains = [100 * row["gain"]["difference"] for row in own]
            ends = [
                [
                    100 * abs(row["gain"]["difference"] - row["gain"][end])
                    for row in own
                ]
                for end in ("low", "high")
            ]
            names = [row["method"] for row in own]
            axis.barh(names, gains, xerr=ends, color=BLUE, ecolor="0.2")
            axis.axvline(0.0, color="0.2", lw=1)
            axis.invert_yaxis()
            axis.set_title(gallery, fontsize=10)
            axis.set_xlabel("gain, points of MAP@R")


def main(arguments: list[str] | None = None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("local_matching", settings, measure, draw, table)


if __name__ == "__main__":
    main()
