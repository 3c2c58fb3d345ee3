"""Finds a data set on disk and checks that all of it is there."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from training.datasets.archives import is_archive, unpacked
from training.datasets.image_set import RetrievalSplits


def find_root(
    data_dir: str | Path, name: str, marker: str, archives: Sequence[str] = ()
) -> Path:
    """The folder that holds a data set in its original layout.

    Args:
        data_dir: The data set's folder, a folder above it, its archive, or
            the folder with its archive.
        name: Name of the data set, for the error.
        marker: A path inside the data set's root that must exist.
        archives: File names under which the data set is distributed.

    Returns:
        The folder that contains `marker`.

    Raises:
        FileNotFoundError: the data set is in none of these places; the
            message lists them.
    """
    if data_dir is None:
        raise FileNotFoundError(
            f"{name} must be on disk: name its folder or archive with "
            "`--data-dir`. Received: data_dir=None."
        )
    data_dir = Path(data_dir).expanduser()
    looked_in = []
    for folder in _candidates(data_dir, archives):
        looked_in.append(folder)
        for root in (folder, *_subfolders(folder)):
            if (root / marker).exists():
                return root
    raise FileNotFoundError(
        f"{name} must hold {marker!r}"
        + (f", or come as {' or '.join(archives)}" if archives else "")
        + f". Looked in: {', '.join(map(str, looked_in)) or data_dir} (and one "
        "folder below)"
        + ("." if data_dir.exists() else f"; {data_dir} does not exist.")
    )


def check_counts(
    splits: RetrievalSplits, expected: Mapping[str, int] | None
) -> RetrievalSplits:
    """Checks that every split has as many images as were published.

    Args:
        splits: What was read.
        expected: Images per split, by name; None where none is published.

    Returns:
        `splits`.

    Raises:
        ValueError: other counts; the message holds both.
    """
    found = {
        name: len(getattr(splits, name) or ()) for name in (expected or {})
    }
    wrong = [
        f"{name}: {found[name]:,} instead of {count:,}"
        for name, count in (expected or {}).items()
        if found[name] != count
    ]
    if wrong:
        raise ValueError(
            f"{splits.name} must be complete, with the published number of "
            f"images. Received: {'; '.join(wrong)}. Unpack the original "
            "archives again; nothing was silently left out here."
        )
    return splits


def check_files(name: str, paths: Sequence) -> None:
    """Raises `FileNotFoundError` naming files that a list has but a disk not.

    Args:
        name: Name of the data set, for the error.
        paths: The files that its list names.
    """
    missing = [str(path) for path in paths if not Path(path).is_file()]
    if missing:
        raise FileNotFoundError(
            f"Every image that {name}'s list names must exist. Received: "
            f"{len(missing):,} of {len(paths):,} missing, first {missing[:3]}."
        )


def _candidates(data_dir, archives):
    if is_archive(data_dir):
        yield unpacked(data_dir)
        return
    yield data_dir
    for archive in archives:
        if (data_dir / archive).is_file():
            yield unpacked(data_dir / archive)


def _subfolders(folder):
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir())
