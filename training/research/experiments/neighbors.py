"""What does a gallery gain that knows its own neighbors?

    python -m training.research.experiments.neighbors --data-dirs birds.zip emoji.zip omniglot.zip cifar.zip --backbone-weights FILE --cache FOLDER

Features of MobileNetV2 1.0, GeM 3, frozen: raw, at the size that a title names, the
sums of views, and learned whitening to 128 numbers, fitted to other classes. Letters
among symbols: a network of single characters, a GSP head on it, and the sum of that
with a second look. Two folds of classes, each searched alone; a fifth of the
photographs of each class are queries that no gallery has. `k 2` and so on are
`NeighborAugmentation` with two rounds and weight 1, `k 2` its default; `chosen`, and
all settings of the rivals, are the best on the other fold: alpha query expansion,
diffusion on the mutual neighbors of the whole gallery, SuperGlobal's re-ranking of
the nearest 400, k-reciprocal re-ranking. Gains are paired, in points of MAP@R over
doing nothing, with 95 % intervals over classes, each of which is searched once.
"""

import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.metrics.retrieval import ranked_scores
from keras_gsp.retrieval.augmentation import AugmentedRows, unit
from training.pictures.palette import picture
from training.research.experiments import two_looks
from training.research.report import CommandSettings, Table, run_measurement
from training.runs.raw_baseline import pooled

Augmentation = gsp.retrieval.NeighborAugmentation
SCORES = "map_at_r", "precision_at_1", "recall_at_10"
HEADINGS = ["", "settings", "MAP@R", "P@1", "recall@10", "gain"]
K = 1, 2, 4, 8, 16
RIVALS: dict[str, list[Any]] = {
    "query expansion": [(k, 3.0) for k in K],
    "diffusion": list(itertools.product((4, 8, 16), (0.9, 0.99))),
    "SuperGlobal": list(itertools.product((2, 4, 9), (0.15, 1.0))),
    "k-reciprocal": [(5, 3), (10, 1), (10, 6), (20, 1), (20, 6)],
    "chosen": [
        Augmentation(k, rounds=rounds, original_weight=weight)
        for k, rounds, weight in itertools.product(K, (1, 2, 3), (0.0, 1.0))
    ],
}


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Data and backbone."""

    data_dirs: tuple[Path, ...] = ()
    """Folders or archives of images; of one with `test`, that alone."""
    pixels: tuple[int, ...] = (160, 128, 96, 96)
    """Height and width of the images of each."""
    views: tuple[int, ...] = (160, 224, 288)
    """Sizes of the views of the first one."""
    num_images: tuple[int, ...] = (30, 8, 20, 200)
    """Photographs of a class, at most, of each."""
    num_classes: int = 400
    """Classes of each, at most."""
    backbone_weights: Path | None = None
    """Weights of MobileNetV2; random by default."""
    cache: Path | None = None
    """Folder that keeps the embeddings."""
    rows: tuple[int, ...] = (10_000, 100_000)
    """Sizes of the galleries that are timed."""

    SMALL = {
        **{"pixels": (32,), "views": (32, 64), "rows": (200,)},
        **{"num_images": (6,), "num_classes": 12},
    }


def embedded(settings: Settings, number: int) -> dict[str, np.ndarray]:
    """Labels, and rows by view, of a data set."""
    path, side = settings.data_dirs[number], settings.pixels[number]
    file = settings.cache and settings.cache / f"{path.stem}.npz"
    if file and file.exists():
        return dict(np.load(file))
    images = gsp.data.image_folder(path)
    if tests := [x for x in images.class_names if x.startswith("test/")]:
        images = images.of_names(tests)
    step = -(-images.num_classes // settings.num_classes)
    images = images.of_classes(np.arange(images.num_classes)[::step])
    images = images.of_each_class(settings.num_images[number])
    found = {"labels": images.labels}
    for size in (side,) if number else settings.views:
        network = keras.applications.MobileNetV2(
            (size, size, 3), include_top=False, weights=None
        )
        if settings.backbone_weights is not None:
            network.load_weights(settings.backbone_weights)
        preprocessing = gsp.data.Preprocessing(size, size)
        batches = gsp.data.image_batches(
            images.paths, preprocessing=preprocessing
        )
        parts = []
        for step in range(batches.num_batches or 0):
            batch = np.asarray(batches[step]) / 127.5 - 1.0
            maps = network.predict_on_batch(batch)
            mirrored = network.predict_on_batch(batch[:, :, ::-1])
            parts.append([pooled(x)["GeM 3"] for x in (maps, mirrored)])
        found[f"{size}"], found[f"{size} mirrored"] = map(
            np.concatenate, zip(*parts, strict=True)
        )
    if file:
        np.savez(file, **found)  # type: ignore[arg-type]
    return found


def letters(settings: Settings) -> dict[str, np.ndarray]:
    """Rows of letters in clutter by name and side, with their labels."""
    file = settings.cache and settings.cache / "letters.npz"
    if not (file and file.exists()):
        task = two_looks.letters(two_looks.Settings(smoke=settings.smoke))
        own = two_looks.Settings(
            rates=(1e-3,), steps=4 if settings.smoke else 400
        )
        looks = two_looks.Looks(task, own, seed=0)
        sides = two_looks.SIDES[1:]
        found = {
            f"averaged/{s}": pooled(looks.maps[s])["average"] for s in sides
        }
        head = looks.trained(looks.maps, looks.poolings["GSP"])
        weights = two_looks.weights_of(head, looks.maps)
        near = looks.near_maps(looks.boxes(weights))
        second = looks.trained(near, lambda: None)
        first = two_looks.embedded(head, looks.maps)
        again = two_looks.embedded(second, near)
        for s in sides:
            found[f"GSP head/{s}"] = first[s]
            found[f"second look/{s}"] = unit(first[s]) + unit(again[s])
            found[f"labels/{s}"] = task.labels[s]
        if file is None:
            return found
        np.savez(file, **found)  # type: ignore[arg-type]
    return dict(np.load(file))


def held_out(labels: np.ndarray) -> np.ndarray:
    """Which rows are queries: a fifth of each class."""
    codes = np.unique(labels, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(len(labels))
    ranks = np.zeros(len(labels), int)
    for code in range(codes.max() + 1):
        own = order[codes[order] == code]
        ranks[own] = np.arange(len(own))
    return ranks < np.maximum(np.bincount(codes)[codes] // 5, 1)


def similarities(method: str, setting: Any, gallery: Any, queries: Any) -> Any:
    """Similarities (queries, gallery) by which a method ranks."""
    if isinstance(setting, Augmentation):
        augmented = AugmentedRows(gallery, setting)
        return augmented.expanded(queries) @ augmented.rows.T
    gallery, queries = unit(gallery), unit(queries)
    plain = queries @ gallery.T
    if method == "plain":
        return plain
    if method == "k-reciprocal":
        k, expanded = setting
        return -gsp.metrics.k_reciprocal(
            queries, gallery, num_neighbors=k, num_expanded=expanded
        )
    order = np.argsort(-plain, axis=1)
    if method == "query expansion":
        count, power = setting
        near = order[:, :count]
        weights = np.maximum(np.take_along_axis(plain, near, 1), 0) ** power
        mean = np.einsum("qk,qks->qs", weights, gallery[near])
        return unit(queries + mean) @ gallery.T
    own = gallery @ gallery.T
    np.fill_diagonal(own, -1)
    ranks = np.argsort(np.argsort(-own, axis=1), axis=1)
    if method == "diffusion":  # Iscen et al. 2017, equations (3) to (7).
        count, alpha = setting
        mutual = (ranks < count) & (ranks < count).T
        graph = np.where(mutual, np.maximum(own, 0) ** 3, 0).astype("f8")
        root = 1 / np.sqrt(np.maximum(graph.sum(1), 1e-12))
        graph *= root[:, None] * root
        start = np.zeros_like(plain, "f8")
        near = order[:, :count]
        values = np.maximum(np.take_along_axis(plain, near, 1), 0) ** 3
        np.put_along_axis(start, near, values, 1)
        flow = np.linalg.solve(np.eye(len(graph)) - alpha * graph, start.T).T
        return flow + 1e-9 * plain  # what it does not reach
    count, beta = setting  # Shao et al. 2023, section 3.3
    weights = np.where(ranks < count, np.maximum(own, 0) * beta, 0)
    refined = (gallery + weights @ gallery) / (1 + weights.sum(1))[:, None]
    largest = np.maximum(gallery[order[:, :count]].max(1), queries)
    scores = (queries @ refined.T + largest @ gallery.T) / 2
    far = np.argsort(order, axis=1) >= 400
    return np.where(far, plain - 10, scores)


def scored(found: np.ndarray, labels: np.ndarray, gallery: np.ndarray) -> dict:
    """Scores of each query by its similarities."""
    order = np.argsort(-found, axis=1, kind="stable")
    hits = gallery[order] == labels[:, None]
    queries, ranks = np.nonzero(hits)
    scores = ranked_scores(queries, ranks + 1, hits.sum(1), recall_at=(10,))
    return {name: scores[name] for name in SCORES}


class Searched:
    """The rows of a fold, searched by a fifth of them."""

    def __init__(self, rows: np.ndarray, labels: np.ndarray) -> None:
        self.rows, self.labels = rows, labels
        self.is_query = held_out(labels)

    def score(self, method: str, setting: Any, gallery: Any = None) -> dict:
        """Scores of each query; `gallery` are positions of its rows."""
        if gallery is None:
            gallery = np.flatnonzero(~self.is_query)
        known = np.isin(self.labels, self.labels[gallery])
        asked = np.flatnonzero(self.is_query & known)
        rows = self.rows[gallery], self.rows[asked]
        found = similarities(method, setting, *rows)
        own = self.labels[asked]
        return scored(found, own, self.labels[gallery]) | {"classes": own}

    def best(self, method: str) -> Any:
        """The setting of a method with the largest MAP@R."""
        settings = RIVALS[method]
        found = [self.score(method, one)["map_at_r"].mean() for one in settings]
        return settings[int(np.argmax(found))]


def rows_of_table(folds: list, others: list, methods: Any) -> list[list]:
    """A table's rows: nothing, fixed numbers of neighbors, searched methods."""
    made: list[list] = []
    plain = [fold.score("plain", None) for fold in folds]

    def add(name, scores, settings=""):
        means = [np.concatenate([x[s] for x in scores]).mean() for s in SCORES]
        cells = [f"{100 * one:.1f}" for one in means]
        gain = ""
        if scores is not plain:
            names = "map_at_r", "map_at_r", "classes"
            given = zip((scores, plain, plain), names, strict=True)
            # Each class is in one fold: together they are one repetition.
            found = gsp.metrics.paired_difference(
                *(np.concatenate([x[n] for x in side]) for side, n in given)
            )
            ends = (found[name] for name in ("difference", "low", "high"))
            middle, low, high = (f"{100 * one:+.1f}" for one in ends)
            gain = f"{middle} [{low}, {high}]"
        made.append([name, settings, *cells, gain])

    add("nothing", plain)
    for k in K:
        add(f"k {k}", [fold.score("", Augmentation(k)) for fold in folds])
    for method in methods:
        best = [other.best(method) for other in others]
        scores = [
            f.score(method, one) for f, one in zip(folds, best, strict=True)
        ]
        add(method, scores, "; ".join(dict.fromkeys(map(described, best))))
    return made


def described(setting: Any) -> str:
    """A setting, as a table shows it."""
    if isinstance(setting, Augmentation):
        weight = setting.original_weight
        return (
            f"k {setting.num_neighbors}, {setting.rounds} rounds, w {weight:g}"
        )
    return ", ".join(map(str, setting))


def representations(found: dict) -> dict[str, list[Searched]]:
    """Both folds of raw rows, sums of views, and whitened rows."""
    labels = found.pop("labels")
    rows = {k: v for k, v in found.items() if v.ndim == 2}
    first, sizes = next(iter(rows)), [k for k in rows if "mir" not in k]
    for views in (*((k, f"{k} mirrored") for k in sizes), sizes):
        if len(views) > 1 and set(views) <= set(rows):
            rows[" + ".join(views)] = unit(np.sum([rows[k] for k in views], 0))
    order = np.random.default_rng(0).permutation(labels.max() + 1)
    folds = [np.isin(labels, half) for half in np.array_split(order, 2)]
    made = {
        name: [Searched(own[fold], labels[fold]) for fold in folds]
        for name, own in rows.items()
    }
    made["whitened"] = []
    for fold in folds:
        size = min(128, int((~fold).sum()) - 1)
        layer = gsp.layers.Whitening(size, shrinkage=0.8)
        layer.adapt(rows[first][~fold], labels[~fold])
        white = keras.ops.convert_to_numpy(layer(rows[first][fold]))
        made["whitened"].append(Searched(white, labels[fold]))
    return made


def measure(settings: Settings) -> Any:
    """Tables: representations with rivals, galleries, times."""
    density: list[list] = []
    for number, path in enumerate(settings.data_dirs):
        made = representations(embedded(settings, number))
        for place, (name, folds) in enumerate(made.items()):
            # Whitening is fitted to the other fold, which then chooses nothing.
            methods = list(RIVALS) if place == 0 else []
            rows = rows_of_table(folds, folds[::-1], methods)
            yield Table(HEADINGS, rows, 2, f"{path.stem}: {name}")
            if place == 0:
                density += [[path.stem, *row] for row in galleries(folds)]
    found = letters(settings)
    for name in ("averaged", "GSP head", "second look"):
        other, fold = (
            Searched(found[f"{name}/{side}"], found[f"labels/{side}"])
            for side in two_looks.SIDES[1:]
        )
        rows = rows_of_table([fold], [other], RIVALS)
        yield Table(HEADINGS, rows, 2, f"letters in clutter: {name}")
    headings = ["", "gallery", "nothing", "k 2", "k 4", "k 8", "k 16"]
    table = Table(headings, density, 2, "MAP@R / P@1 by what the gallery holds")
    if settings.json:
        draw(settings.json.with_suffix(".png"), table)
    yield table
    yield timed(settings)


def galleries(folds: list[Searched]) -> Any:
    """Rows of scores by what the gallery holds."""

    def ranks(fold):
        """The rank of each row of the gallery in its class, queries last."""
        keys = fold.is_query, fold.labels
        order = np.lexsort(keys)
        starts = np.searchsorted(fold.labels[order], fold.labels[order])
        found = np.empty(len(order), int)
        found[order] = np.arange(len(order)) - starts
        return np.where(fold.is_query, len(order), found)

    most = min(np.bincount(f.labels[~f.is_query]).max() for f in folds)
    kinds: dict[str, Any] = {
        f"{n} of each": lambda fold, n=n: ranks(fold) < n
        for n in (1, 2, 4, 8, 16, 32)
        if n <= most
    }
    kinds["1 to 32, by class"] = lambda f: ranks(f) < 2 ** (f.labels % 6)
    kinds["90 % strangers"] = None
    for kind, rule in kinds.items():
        cells = []
        for k in (0, *K[1:]):
            scores = []
            for fold in folds:
                gallery, searched = None, fold
                if rule is None:
                    names = np.unique(fold.labels)
                    few = names[: max(1, len(names) // 10)]
                    searched = Searched(fold.rows, fold.labels)
                    gallery = np.flatnonzero(~fold.is_query)
                    searched.is_query = fold.is_query & np.isin(
                        fold.labels, few
                    )
                else:
                    gallery = np.flatnonzero(rule(fold))
                scores.append(searched.score("", Augmentation(k), gallery))
            means = [
                np.concatenate([x[s] for x in scores]).mean() for s in SCORES
            ]
            cells.append(" / ".join(f"{100 * one:.1f}" for one in means[:2]))
        yield [kind, *cells]


def draw(path: Path, table: Table) -> None:
    """Draws what two and eight neighbors gain by photographs of a thing."""
    with picture(path, 1, 2, figsize=(7.0, 2.6), sharey=True) as axes:
        for axis, name in zip(axes[0], ("k 2", "k 8"), strict=True):
            for title in dict.fromkeys(line[0] for line in table.rows):
                lines = [
                    (int(kind.split()[0]), cells)
                    for own, kind, *cells in table.rows
                    if own == title and kind.endswith("of each")
                ]
                column = table.headings.index(name) - 2
                gains = [
                    float(cells[column].split()[0]) - float(cells[0].split()[0])
                    for _, cells in lines
                ]
                axis.plot([n for n, _ in lines], gains, marker="o", label=title)
            axis.set_xscale("log", base=2)
            axis.set_title(f"{name[2:]} neighbors, two rounds, w = 1")
            axis.set_xlabel("photographs of a thing in the gallery")
        axes[0, 0].set_ylabel("points of MAP@R gained")
        axes[0, 1].legend(fontsize=7)


def timed(settings: Settings) -> Table:
    """Seconds to build and milliseconds of a query, beside a plain index."""
    table, rng = [], np.random.default_rng(0)
    for count in settings.rows:
        middles = rng.normal(size=(max(1, count // 20), 128)).astype("f4")
        labels = np.arange(count) % len(middles)
        rows = unit(middles[labels] + 0.8 * rng.normal(size=(count, 128)))
        seconds = {}
        for name, setting in (("plain", None), ("augmented", Augmentation())):
            start = time.perf_counter()
            index = gsp.retrieval.ExactIndex(rows, labels, augmentation=setting)
            built = time.perf_counter()
            for query in rows[:20]:
                index.search(query)
            searched = (time.perf_counter() - built) / 20
            seconds[name] = built - start, searched
        start = time.perf_counter()
        for some in range(0, count, 512):
            rows[some : some + 512] @ rows.T
        product = time.perf_counter() - start
        (own, slow), fast = seconds["augmented"], seconds["plain"][1]
        cells = own, product, 1000 * fast, 1000 * slow
        table.append([f"{count:,}", *(f"{one:.3g}" for one in cells)])
    headings = ["rows of 128 numbers", "build, s", "one product of all, s"]
    headings += ["a query, plain, ms", "augmented, ms"]
    return Table(headings, table, 1, "Times, on a machine that others used")


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
