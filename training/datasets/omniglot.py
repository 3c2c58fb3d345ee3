"""Omniglot: handwritten characters of alphabets never seen in training."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from training.datasets.archives import is_archive, unpacked
from training.datasets.image_folder import image_folder, image_folder_splits
from training.datasets.image_set import RetrievalSplits
from training.datasets.layout import check_counts

COUNTS = {"train": 19280, "test": 13180}
_PARTS = {"train": "images_background", "test": "images_evaluation"}


def omniglot(
    data_dir: str | Path, *, expected: Mapping[str, int] | None = COUNTS
) -> RetrievalSplits:
    """Reads Omniglot in its original layout.

    Args:
        data_dir: Folder with `images_background/` and `images_evaluation/`
            or their zip files; or one of the small background sets, such as
            `images_background_small1.zip`, alone.
        expected: Images per split to be found in the whole data set.

    Returns:
        The splits: background characters to learn from (19,280 images),
        evaluation characters unseen (13,180); a small set alone is split in
        two halves by character, and its counts are not checked.

    Raises:
        FileNotFoundError: no images.
        ValueError: other counts.

    Reference:
        Lake et al., Human-level concept learning through probabilistic
        program induction (Science, 2015).
    """
    if data_dir is None:
        raise FileNotFoundError(
            "Omniglot must be on disk: name its folder or archive with "
            "`--data-dir`. Received: data_dir=None."
        )
    folders = {
        side: _part(Path(data_dir).expanduser(), part)
        for side, part in _PARTS.items()
    }
    if None in folders.values():
        return replace(image_folder_splits(data_dir), name="omniglot")
    parts = {side: image_folder(path) for side, path in folders.items()}
    return check_counts(RetrievalSplits(name="omniglot", **parts), expected)


def _part(data_dir, name):
    if is_archive(data_dir):
        data_dir = unpacked(data_dir)
    if (data_dir / name).is_dir():
        return data_dir / name
    archive = data_dir / f"{name}.zip"
    return unpacked(archive) / name if archive.is_file() else None
