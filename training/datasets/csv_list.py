"""Any list of images in a CSV file."""

import csv
from pathlib import Path

import numpy as np

from training.datasets.class_split import split_by_class
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.datasets.layout import check_files

_SPLITS = ("train", "test", "query", "gallery", "validation")


def csv_splits(
    csv_file: str | Path,
    *,
    num_train_classes: int | None = None,
    seed: int = 0,
    on_missing: str = "raise",
) -> RetrievalSplits:
    """Reads a list with the columns `path`, `label` and perhaps `split`.

    Args:
        csv_file: The list, with a header line. Paths are relative to its
            folder, or absolute. `split` is `train`, `test`, `validation`,
            `query` or `gallery`; without the column, classes are drawn.
        num_train_classes: Classes to train with where there is no `split`.
        seed: Seed of that draw.
        on_missing: `"raise"`: every image must exist; `"skip"`: one of them
            is enough, the others are left to whoever reads them.

    Returns:
        The splits; with `query` and `gallery`, `test` is both together.

    Raises:
        FileNotFoundError: no such list, or images that it names are missing.
        ValueError: columns, rows or split words that cannot be meant, or a
            class on two sides.
    """
    if csv_file is None:
        raise FileNotFoundError(
            "A list must be on disk: name its CSV file with `--data-dir`. "
            "Received: data_dir=None."
        )
    csv_file = Path(csv_file).expanduser()
    rows = _rows(csv_file)
    paths = [csv_file.parent / row["path"] for row in rows]
    if on_missing == "raise" or not any(path.exists() for path in paths):
        check_files(csv_file.name, paths)
    names = [row["label"] for row in rows]
    if "split" not in rows[0]:
        return split_by_class(
            _image_set(paths, names),
            csv_file.stem,
            num_train_classes=num_train_classes,
            seed=seed,
        )
    return _named_splits(csv_file.stem, paths, names, rows)


def _rows(csv_file):
    if not csv_file.is_file():
        raise FileNotFoundError(
            "`data_dir` must be a CSV file. Received: "
            f"{csv_file}, which is no file."
        )
    with csv_file.open(newline="", encoding="utf-8-sig") as lines:
        rows = list(csv.DictReader(lines))
    columns = set(rows[0]) if rows else set()
    if not {"path", "label"} <= columns:
        raise ValueError(
            f"{csv_file} must have the columns path and label, and a row. "
            f"Received: columns {sorted(map(str, columns))}, {len(rows)} rows."
        )
    for number, row in enumerate(rows, start=2):
        if not row["path"] or not row["label"]:
            raise ValueError(
                f"Every row of {csv_file} must have a path and a label. "
                f"Received: line {number}: {row}."
            )
        if "split" in row and row["split"] not in _SPLITS:
            raise ValueError(
                f"`split` must be one of {', '.join(_SPLITS)}. Received: "
                f"{row['split']!r} in line {number} of {csv_file}."
            )
    return rows


def _named_splits(name, paths, names, rows):
    chosen = {
        split: [i for i, row in enumerate(rows) if row["split"] == split]
        for split in _SPLITS
    }
    tested = chosen["test"] or sorted(chosen["query"] + chosen["gallery"])
    if not chosen["train"] or not tested:
        raise ValueError(
            f"{name} must have images to train with and to score. Received: "
            f"{ {split: len(indices) for split, indices in chosen.items()} }."
        )

    def part(indices, of=None):
        kept = [names[i] for i in indices]
        return _image_set([paths[i] for i in indices], kept, of)

    search = {}
    if chosen["query"]:
        classes = sorted({names[i] for i in chosen["query"]})
        search = {
            "query": part(chosen["query"], classes),
            "gallery": part(chosen["gallery"], classes),
        }
    if chosen["validation"]:
        search["validation"] = part(chosen["validation"])
    return RetrievalSplits(
        name=name, train=part(chosen["train"]), test=part(tested), **search
    )


def _image_set(paths, names, classes=None):
    classes = classes or sorted(set(names))
    positions = {name: label for label, name in enumerate(classes)}
    unknown = sorted(set(names) - set(classes))
    if unknown:
        raise ValueError(
            "Query and gallery must have the same classes. Received: "
            f"{unknown[:5]} in the gallery only."
        )
    labels = np.array([positions[name] for name in names], "int64")
    return ImageSet(labels=labels, class_names=tuple(classes), paths=paths)
