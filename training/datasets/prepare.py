"""Prepares a TFDS data set: `python -m training.datasets.prepare cub`."""

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from training.datasets.tfds_source import tfds_splits


@dataclass(frozen=True)
class PrepareCommand:
    """Downloads and prepares a data set once; runs then read it offline."""

    dataset: Annotated[
        Literal[
            "cub",
            "cars",
            "sop",
            "inshop",
            "cifar10",
            "cifar100",
            "mnist",
            "omniglot",
        ],
        tyro.conf.Positional,
    ]
    """What to prepare."""
    data_dir: str | None = None
    """TFDS's folder; ~/tensorflow_datasets by default."""
    manual_dir: str | None = None
    """Folder with the original archives under their registered names; for
    inshop the unpacked data set. Needs no network then."""
    download: bool = False
    """Download what is missing."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    command = tyro.cli(
        PrepareCommand,
        prog="python -m training.datasets.prepare",
        description=__doc__,
        args=arguments,
    )
    try:
        splits = tfds_splits(
            command.dataset,
            command.data_dir,
            download=command.download,
            manual_dir=command.manual_dir,
        )
    except (FileNotFoundError, ConnectionError, ImportError, ValueError) as e:
        sys.exit(f"error: {e}")
    print(
        f"{splits.name}: {len(splits.train):,} images to learn from, "
        f"{len(splits.test):,} of unseen classes. Train with `--source tfds`."
    )


if __name__ == "__main__":
    main()
