"""What does a gallery gain that knows its own neighbors?

    python -m training.research.experiments.neighbors --data-dirs birds.zip emoji.zip omniglot.zip cifar.zip --backbone-weights FILE

Two folds of classes, each searched alone; a fifth of the photographs of each class are
queries that no gallery has. What is fitted or trained saw the other fold alone. Raw rows
are MobileNetV2 1.0, frozen, GeM 3, at the size in pixels that is named; with their mirror
images or other sizes they are summed; learned whitening has 128 numbers; the head is GSP
behind a projection to 128 numbers, on 7 x 7 frozen features; fine-tuned is the whole
network, 200 steps of 32 photographs. Letters among symbols: a network of single
characters, averaged, with a GSP head, and the sum of that with a second look.

Cells are MAP@R / P@1 / recall@10 in %. The gain is that of `NeighborAugmentation()` (two
neighbors, two rounds, weight 1) in points of MAP@R, with a 95 % interval over classes.
Chosen settings, and those of all rivals, are the best by MAP@R on the other fold: alpha
query expansion, SuperGlobal's re-ranking and diffusion on mutual neighbors, both among the
nearest 400, and k-reciprocal re-ranking.
"""

import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp._labeled_batches import batches_of
from keras_gsp.metrics.retrieval import ranked_scores
from keras_gsp.retrieval.augmentation import AugmentedRows, unit
from training.pictures.palette import picture
from training.research.experiments import two_looks
from training.research.experiments.heads import best_head, mobilenet
from training.research.report import (
    CommandSettings,
    Table,
    gain_text,
    run_measurement,
)
from training.runs.raw_baseline import pooled

Augmentation = gsp.retrieval.NeighborAugmentation
SCORES = "map_at_r", "precision_at_1", "recall_at_10"
K = 1, 2, 4, 8, 16
CANDIDATES = 400
RIVALS: dict[str, list[Any]] = {
    "query expansion": [(k, 3.0) for k in K],
    "SuperGlobal": list(itertools.product((2, 4, 9), (0.15, 1.0))),
    "diffusion": list(itertools.product((4, 8, 16), (0.9, 0.99))),
    "k-reciprocal": [(5, 3), (10, 1), (10, 6), (20, 1), (20, 6)],
    "neighbors, default": [Augmentation()],
    "neighbors, chosen": [
        Augmentation(k, rounds=rounds, original_weight=weight)
        for k, rounds, weight in itertools.product(K, (1, 2, 3), (0.0, 1.0))
    ],
}
COUNTS = 1, 2, 4, 8, 16, 32


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Data and backbone."""

    data_dirs: tuple[Path, ...] = ()
    """Folders or archives of images; of one with `test`, that alone."""
    pixels: tuple[int, ...] = (160, 128, 96, 96)
    """Height and width of the images of each."""
    more_sizes: tuple[int, ...] = (224, 288)
    """Further sizes of the first one; its head sees the first of them."""
    num_images: tuple[int, ...] = (30, 8, 20, 200)
    """Photographs of a class, at most, of each."""
    num_classes: int = 400
    """Classes of each, at most."""
    steps: int = 200
    """Steps that a head and a network are trained."""
    backbone_weights: Path | None = None
    """Weights of MobileNetV2; random by default."""
    rows: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    """Sizes of the galleries that are timed."""

    SMALL = {
        **{"pixels": (32,), "more_sizes": (64,), "rows": (200,)},
        **{"num_images": (30,), "num_classes": 12, "steps": 4},
    }


def network(settings: Settings, size: int) -> keras.Model:
    """MobileNetV2 of pixels in [0, 255]."""
    backbone = mobilenet(size, settings.backbone_weights)
    for layer in backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False
    scale = keras.layers.Rescaling(1 / 127.5, offset=-1)
    return keras.Sequential([keras.Input((size, size, 3)), scale, backbone])


def embedded(settings: Settings, number: int) -> dict[str, np.ndarray]:
    """Labels, folds, and rows by what made them, of a data set."""
    images = gsp.data.image_folder(settings.data_dirs[number])
    if tests := [x for x in images.class_names if x.startswith("test/")]:
        images = images.of_names(tests)
    step = -(-images.num_classes // settings.num_classes)
    images = images.of_classes(np.arange(images.num_classes)[::step])
    images = images.of_each_class(settings.num_images[number])
    labels = images.labels
    order = np.random.default_rng(0).permutation(labels.max() + 1)
    fold = np.isin(labels, order[: len(order) // 2])
    rows: dict[str, np.ndarray] = {}
    size = settings.pixels[number]
    for side in (size,) if number else (size, *settings.more_sizes):
        batches = gsp.data.image_batches(
            images.paths, preprocessing=gsp.data.Preprocessing(side, side)
        )
        pixels = np.concatenate(
            [np.asarray(x, "u1") for x in batches_of(batches)]
        )
        features = network(settings, side)
        maps = features.predict(pixels, batch_size=64, verbose=0)
        mirrored = features.predict(pixels[:, :, ::-1], 64, verbose=0)
        rows[f"raw, {side}"] = pooled(maps)["GeM 3"]
        both = rows[f"raw, {side}"] + pooled(mirrored)["GeM 3"]
        rows[f"raw, {side} and mirrored"] = unit(both)
        if side == size:
            layer = partial(whitened, rows[f"raw, {side}"], labels)
            rows["whitened"] = of_other_fold(fold, layer)
            if not number:
                tuned = partial(fine_tuned, settings, pixels, labels)
                rows["fine-tuned"] = of_other_fold(fold, tuned)
        elif side == settings.more_sizes[0]:
            head = partial(trained_head, settings, maps, labels)
            rows[f"GSP head, {side}"] = of_other_fold(fold, head)
    if not number:
        sizes = size, *settings.more_sizes
        total = np.sum([rows[f"raw, {side}"] for side in sizes], axis=0)
        rows["raw, " + " + ".join(map(str, sizes))] = unit(total)
    return {"labels": labels, "fold": fold, **rows}


def of_other_fold(fold: np.ndarray, rows_of: Callable) -> np.ndarray:
    """Rows of each fold by what was fitted to the other one."""
    parts = [rows_of(fitted=~side, rows=side) for side in (fold, ~fold)]
    found = np.empty((len(fold), parts[0].shape[1]), "f4")
    found[fold], found[~fold] = parts
    return found


def whitened(embeddings: Any, labels: Any, fitted: Any, rows: Any) -> Any:
    """Learned whitening to 128 numbers."""
    size = min(128, int(fitted.sum()) - 1)
    layer = gsp.layers.Whitening(size, shrinkage=0.8)
    layer.adapt(embeddings[fitted], labels[fitted])
    return keras.ops.convert_to_numpy(layer(embeddings[rows]))


def trained(
    encoder: Any, inputs: Any, labels: Any, fitted: Any, settings: Settings
) -> None:
    """Trains on two thirds of the classes, the others choose the step."""
    classes = np.unique(labels[fitted])
    train = fitted & np.isin(labels, classes[len(classes) // 3 :])
    sides = {"train": train, "validation": fitted & ~train}
    best_head(
        encoder,
        {name: inputs[side] for name, side in sides.items()},
        {name: labels[side] for name, side in sides.items()},
        gsp.losses.ContrastiveLoss(0.0, 0.3841),
        rates=(3e-4, 1e-4) if inputs.dtype != np.uint8 else (1e-4,),
        steps=settings.steps,
    )


def trained_head(
    settings: Settings, maps: Any, labels: Any, fitted: Any, rows: Any
) -> Any:
    """A GSP head on frozen features, from PCA."""
    keras.utils.set_random_seed(0)
    pooling = gsp.layers.GeneralizedSumPooling(64, 0.1, 20.0)
    encoder = two_looks.started({"train": maps[fitted]}, pooling)
    trained(encoder, maps, labels, fitted, settings)
    return encoder.predict(maps[rows], verbose=0)


def fine_tuned(
    settings: Settings, pixels: Any, labels: Any, fitted: Any, rows: Any
) -> Any:
    """The whole network; before its first step it gives the raw rows."""
    keras.utils.set_random_seed(0)
    encoder = gsp.models.build_encoder(
        network(settings, pixels.shape[1]),
        embedding_size=None,
        pooling=gsp.layers.GeneralizedMeanPooling(3.0),
    )
    trained(encoder, pixels, labels, fitted, settings)
    return encoder.predict(pixels[rows], 64, verbose=0)


def letters(settings: Settings) -> dict[str, np.ndarray]:
    """Rows of letters in clutter; the other fold is validation classes."""
    task = two_looks.letters(two_looks.Settings(smoke=settings.smoke), seed=0)
    steps = 4 if settings.smoke else 400
    training = two_looks.Settings(rates=(1e-3,), steps=steps)
    looks = two_looks.Looks(task, training, seed=0)
    head = looks.trained(looks.maps, looks.poolings["GSP"])
    near = looks.near_maps(looks.boxes(two_looks.weights_of(head, looks.maps)))
    second = looks.trained(near, lambda: None)
    first = two_looks.embedded(head, looks.maps)
    again = two_looks.embedded(second, near)
    sides = two_looks.SIDES[1:]
    rows = {
        "averaged": [pooled(looks.maps[s])["average"] for s in sides],
        "GSP head": [first[s] for s in sides],
        "second look": [unit(first[s]) + unit(again[s]) for s in sides],
        "labels": [task.labels[s] for s in sides],
        "fold": [np.full(len(task.labels[s]), s == "test") for s in sides],
    }
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def similarities(method: str, setting: Any, gallery: Any, queries: Any) -> Any:
    """Similarities (queries, gallery) by which a method ranks."""
    if isinstance(setting, Augmentation):
        augmented = AugmentedRows(gallery, setting)
        return augmented.expanded(queries) @ augmented.rows.T
    gallery, queries = unit(gallery), unit(queries)
    plain = queries @ gallery.T
    if method == "nothing":
        return plain
    if method == "k-reciprocal":
        k, expanded = setting
        return -gsp.metrics.k_reciprocal(
            queries, gallery, num_neighbors=k, num_expanded=expanded
        )
    order = np.argsort(-plain, axis=1)
    count, weight = setting
    if method == "query expansion":
        near = order[:, :count]
        weights = np.maximum(np.take_along_axis(plain, near, 1), 0) ** weight
        mean = np.einsum("qk,qks->qs", weights, gallery[near])
        return unit(queries + mean) @ gallery.T
    pairs = gallery @ gallery.T
    np.fill_diagonal(pairs, -1)
    ranks = np.argsort(np.argsort(-pairs, axis=1), axis=1)
    if method == "SuperGlobal":  # Shao et al. 2023, section 3.3
        weights = np.where(ranks < count, np.maximum(pairs, 0) * weight, 0)
        refined = (gallery + weights @ gallery) / (1 + weights.sum(1))[:, None]
        largest = np.maximum(gallery[order[:, :count]].max(1), queries)
        scores = (queries @ refined.T + largest @ gallery.T) / 2
        far = np.argsort(order, axis=1) >= CANDIDATES
        return np.where(far, plain - 10, scores)
    # Iscen et al. 2017, equations (3) to (7), among the nearest.
    mutual = (ranks < count) & (ranks < count).T
    graph = np.where(mutual, np.maximum(pairs, 0) ** 3, 0).astype("f8")
    root = 1 / np.sqrt(np.maximum(graph.sum(1), 1e-12))
    graph *= root[:, None] * root
    scores = plain.astype("f8") - 10
    for row, near in enumerate(order[:, :CANDIDATES]):
        start = np.zeros(len(near))
        start[:count] = np.maximum(plain[row, near[:count]], 0) ** 3
        local = np.eye(len(near)) - weight * graph[np.ix_(near, near)]
        flow = np.linalg.solve(local, start)
        scores[row, near] = flow + 1e-9 * plain[row, near]  # the unreached
    return scores


class Searched:
    """Rows that are searched by a fifth of each class, or by some of it."""

    def __init__(self, rows: np.ndarray, labels: np.ndarray) -> None:
        self.rows, self.labels = rows, labels
        rng, codes = np.random.default_rng(0), np.unique(labels, False, True)[1]
        order = rng.permutation(len(labels))
        order = order[np.argsort(codes[order], kind="stable")]
        starts = np.searchsorted(codes[order], codes[order])
        # The rank of each row in its class; the first ones are queries.
        self.ranks = np.empty(len(labels), int)
        self.ranks[order] = np.arange(len(order)) - starts
        self.num_queries = np.maximum(np.bincount(codes)[codes] // 5, 1)
        self.is_query = self.ranks < self.num_queries

    def score(
        self, method: str, setting: Any, holds: Any = True, asks: Any = True
    ) -> dict[str, np.ndarray]:
        """Scores of each query; `holds` and `asks` select rows."""
        gallery = ~self.is_query & holds
        asked = self.is_query & asks
        asked &= np.isin(self.labels, self.labels[gallery])
        rows = self.rows[gallery], self.rows[asked]
        order = np.argsort(
            -similarities(method, setting, *rows), axis=1, kind="stable"
        )
        labels = self.labels[asked]
        hits = self.labels[gallery][order] == labels[:, None]
        queries, ranks = np.nonzero(hits)
        scores = ranked_scores(queries, ranks + 1, hits.sum(1), recall_at=(10,))
        return {"classes": labels} | {name: scores[name] for name in SCORES}

    def best(self, method: str) -> Any:
        """The setting of a method with the largest MAP@R."""
        settings = RIVALS[method]
        if len(settings) == 1:
            return settings[0]
        scores = [self.score(method, x)["map_at_r"].mean() for x in settings]
        return settings[int(np.argmax(scores))]


def joined(scores: list[dict]) -> dict[str, np.ndarray]:
    """The scores of all queries of several folds: each class is in one."""
    return {k: np.concatenate([x[k] for x in scores]) for k in scores[0]}


def cell(scores: dict, names: Any = SCORES) -> str:
    """Mean scores in %."""
    return " / ".join(f"{100 * scores[name].mean():.1f}" for name in names)


def gained(scores: dict, plain: dict) -> str:
    """Points of MAP@R with their interval."""
    values = scores["map_at_r"], plain["map_at_r"], plain["classes"]
    return gain_text(gsp.metrics.paired_difference(*values))


def measure(settings: Settings) -> Any:
    """Tables: representations, rivals, what the gallery holds, times."""
    sources: dict[str, Callable] = {
        path.stem.split("_")[0]: partial(embedded, settings, number)
        for number, path in enumerate(settings.data_dirs)
    }
    sources["letters"] = partial(letters, settings)
    gains, searched = [], {}
    for name, source in sources.items():
        rows = source()
        labels, fold = rows.pop("labels"), rows.pop("fold")
        for made, values in rows.items():
            # The other fold of what was fitted to this one chooses nothing.
            folds = [Searched(values[x], labels[x]) for x in (fold, ~fold)]
            if name == "letters":
                folds, others = folds[:1], folds[1:]
            else:
                others = folds[::-1]
            plain = joined([x.score("nothing", None) for x in folds])
            near = joined([x.score("", Augmentation()) for x in folds])
            wide = joined([x.score("", Augmentation(8)) for x in folds])
            title = f"{name}: {made}"
            row = [title, *map(cell, (plain, near)), gained(near, plain)]
            gains.append([*row, cell(wide)])
            if made == next(iter(rows)) or name == "letters":
                searched[title] = folds, others
    headings = ["", "nothing", "k 2, default", "gain", "k 8"]
    yield Table(headings, gains, 1, "What neighbors add")
    yield rivals(searched)
    contents = [
        [name, *row]
        for name, (folds, _) in searched.items()
        if not name.startswith("letters")
        for row in galleries(folds)
    ]
    if contents:
        headings = ["", "", *(f"{n} each" for n in COUNTS)]
        headings += ["1 to 32 each", "90 % strangers"]
        yield Table(headings, contents, 2, "What the gallery holds")
        if settings.json:
            draw(settings.json.with_suffix(".png"), contents)
    yield timed(settings)


def rivals(searched: dict[str, tuple]) -> Table:
    """MAP@R / P@1 of all methods, their settings chosen on the other fold."""
    lines: list[list] = []
    for method in ("nothing", *RIVALS):
        cells = []
        for folds, others in searched.values():
            settings = [None] * len(folds)
            if method in RIVALS:
                settings = [other.best(method) for other in others]
            pairs = zip(folds, settings, strict=True)
            scores = joined([x.score(method, y) for x, y in pairs])
            cells.append(cell(scores, SCORES[:2]))
        lines.append([method, *cells])
    return Table(["", *searched], lines, 1, "Rivals, MAP@R / P@1")


def galleries(folds: list[Searched]) -> Any:
    """Lines of MAP@R / P@1 for each number of neighbors."""
    most = min(np.bincount(f.labels[~f.is_query]).max() for f in folds)

    def scored(k: int, **select: Callable) -> str:
        scores = [
            f.score(
                "",
                Augmentation(k),
                **{n: rows(f) for n, rows in select.items()},
            )
            for f in folds
        ]
        return cell(joined(scores), SCORES[:2])

    def first(fold: Searched, count: Any) -> Any:
        return fold.ranks - fold.num_queries < count

    def tenth(fold: Searched) -> Any:
        classes = np.unique(fold.labels)
        return np.isin(fold.labels, classes[: max(1, len(classes) // 10)])

    for k in (0, 2, 8):
        yield [
            f"k {k}" if k else "nothing",
            *(
                scored(k, holds=partial(first, count=n)) if n <= most else ""
                for n in COUNTS
            ),
            scored(k, holds=lambda f: first(f, 2 ** (f.labels % 6))),
            scored(k, asks=tenth),
        ]


def draw(path: Path, lines: list[list]) -> None:
    """Draws what two and eight neighbors gain by photographs of a thing."""
    with picture(path, 1, 2, figsize=(7.0, 2.6), sharey=True) as axes:
        for axis, k in zip(axes[0], ("k 2", "k 8"), strict=True):
            for name in dict.fromkeys(line[0] for line in lines):
                points = {
                    line[1]: [float(x.split()[0]) for x in line[2:8] if x]
                    for line in lines
                    if line[0] == name
                }
                gains = np.subtract(points[k], points["nothing"])
                axis.plot(COUNTS[: len(gains)], gains, marker="o", label=name)
            axis.set_xscale("log", base=2)
            axis.set_title(f"{k[2:]} neighbors, two rounds, w = 1")
            axis.set_xticks(COUNTS, map(str, COUNTS))
            axis.set_xlabel("photographs of a thing")
        axes[0, 0].set_ylabel("points of MAP@R gained")
        axes[0, 1].legend(fontsize=7)


def timed(settings: Settings) -> Table:
    """Seconds to build and milliseconds of a query, beside a plain index."""
    lines, rng = [], np.random.default_rng(0)
    for count in settings.rows:
        labels = np.arange(count) % max(1, count // 20)
        middles = rng.standard_normal((labels.max() + 1, 128), "f4")
        noise = rng.standard_normal((count, 128), "f4")
        rows = unit(middles[labels] + 0.8 * noise)
        # Above 100,000 rows the approximate engine finds the neighbors too.
        exact = count <= 100_000
        engine: Any = gsp.retrieval.ExactIndex
        if not exact:
            engine = partial(
                gsp.retrieval.FaissIndex,
                factory="IVF1024,Flat",
                parameters="nprobe=16",
            )
        cells: list[float] = []
        for setting in (None, Augmentation()):
            start = time.perf_counter()
            index = engine(rows, labels, augmentation=setting)
            built = time.perf_counter()
            for query in rows[:20]:
                index.search(query)
            cells += [built - start, 50 * (time.perf_counter() - built)]
        name = f"{count:,} {'exact' if exact else 'faiss IVF1024'}"
        lines.append([name, *(f"{float(f'{x:.3g}'):,g}" for x in cells)])
    headings = ["rows of 128 numbers", "build, s", "a query, ms"]
    headings += ["augmented: build, s", "a query, ms"]
    return Table(headings, lines, 1, "Times")


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
