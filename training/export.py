"""Exports a run: `python -m training.export runs/NAME --index exact`.

With `--license apache-2.0` the model card names the license, as hubs expect.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from training.pictures.framed_image import encoded_image
from training.recipes.settings import Range, positive
from training.runs.command_line import counted, run_command
from training.runs.run_directory import RunDirectory
from training.search import DEFAULT_FOLDER, IMAGES

between_zero_and_one = Range("in (0, 1)", lambda number: 0 < number < 1)


@dataclass(frozen=True)
class Export:
    """Writes a run's encoder, with a gallery to search, as a SavedModel."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, for example `runs/glyphs,seed=1`."""
    index: Literal["exact", "none"] = "exact"
    """With a gallery that is searched exactly, that of the run's data set or
    its test images; or the encoder alone."""
    output: Path | None = None
    """Folder to make; by default saved_models/NAME."""
    false_accept_rate: Annotated[float | None, between_zero_and_one] = None
    """With a gallery: store the distance threshold at which this share of the
    searches for an unknown class has a match, calibrated on the run's
    validation classes; searches then return `is_match` too."""
    augmentation: bool = False
    """With a gallery: its rows know their neighbors, with settings that the
    run's validation classes choose."""
    data_dir: str | None = None
    """Folder or archive of the data set; by default the run's."""
    truncate_to: Annotated[int | None, positive] = None
    """Leading coordinates of the embedding to keep, for runs with a
    matryoshka_size, which scores the parts."""
    license: str | None = None
    """License of the model, as hubs name it: apache-2.0, cc-by-4.0, ...; for
    the model card."""
    overwrite: bool = False
    """Replace what is at `output`."""

    def __post_init__(self) -> None:
        for name in ("false_accept_rate", "augmentation"):
            value = getattr(self, name)
            if value and self.index == "none":
                raise ValueError(
                    f"`{name}` needs a gallery. Received: {name}={value}, "
                    "index=none."
                )

    @property
    def target(self) -> Path:
        """The folder to make."""
        return self.output or DEFAULT_FOLDER / self.run.name


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("export", __doc__, Export, _export, arguments)


def _export(export):
    export_run(export)
    print(f"{export.target}: written")
    path = str(export.target)
    word = shlex.quote(path)
    step = f"python -m training.search {word} IMAGE"
    if export.index == "none":
        step = f"tensorflow.saved_model.load({path!r})"
    print(f"Next: {step}")


def export_run(export: Export) -> None:
    """Loads a run's encoder and writes it, with its gallery."""
    if export.target.exists() and not export.overwrite:
        raise FileExistsError(
            "`output` must be new. "
            f"Received: {export.target}, which exists. Choose another, or "
            "pass --overwrite to replace it."
        )

    import keras_gsp as gsp
    from training.datasets.layout import images_root
    from training.recipes import batches
    from training.recipes.data import load_splits
    from training.runs.scoring import load_encoder

    directory = RunDirectory(export.run)
    recipe = directory.read_recipe().with_(cache_features=False)
    if export.data_dir is not None:
        recipe = recipe.with_(data_dir=export.data_dir)
    encoder = gsp.models.truncate_encoder(
        load_encoder(directory), export.truncate_to
    )
    batches.expected_preprocessing(recipe, encoder)  # agrees, or an error
    metadata = {"run": export.run.name, **directory.read_settings()}
    if export.license is not None:
        metadata["license"] = export.license
    if directory.is_finished:
        metadata["scores"] = directory.read_scores()
    options: dict[str, Any] = {
        "metadata": metadata,
        "overwrite": export.overwrite,
    }
    if export.index == "none":
        gsp.retrieval.export_encoder(encoder, export.target, **options)
        return
    splits = load_splits(recipe, directory.read_classes())
    gallery = splits.gallery or splits.test
    root = images_root(recipe.data_dir or ".")
    index = _index(export, recipe, encoder, splits, gallery, root)
    write_model(export.target, encoder, gallery, index, folder=root, **options)


def _index(export, recipe, encoder, splits, gallery, root):
    """Embeds the gallery; its threshold is that of the validation classes."""
    import keras_gsp as gsp
    from keras_gsp.data.listed_files import names_below
    from training.runs.scoring import embed

    names = [f"test/{i}" for i in range(len(gallery))]
    if gallery.paths:
        # Nobody who gets the export learns where the images are kept.
        names = names_below(gallery.paths, root)
    rows = embed(encoder, recipe, gallery)
    augmentation, validation = None, splits.validation
    # Validation classes: no weight was trained on them.
    if export.augmentation or export.false_accept_rate is not None:
        validation_rows = embed(encoder, recipe, validation)
    if export.augmentation:
        augmentation = gsp.retrieval.NeighborAugmentation.chosen(
            validation_rows, validation.labels
        )
        print(f"{counted(augmentation.num_neighbors, 'neighbor')} of each row")
    index = gsp.retrieval.ExactIndex(
        rows, gallery.names, np.array(names), augmentation=augmentation
    )
    if export.false_accept_rate is not None:
        index.match = gsp.retrieval.MatchThreshold.calibrated(
            validation_rows,
            validation.names,
            gallery=index,
            false_accept_rate=export.false_accept_rate,
        )
        print(index.match.table())
    return index


def write_model(
    target: Path,
    encoder: Any,
    gallery: Any,
    index: Any,
    *,
    folder: Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> None:
    """Writes a SavedModel that searches, with images that have no files.

    `folder` is that of the files; `options` are those of `Retriever.export`.
    """
    import keras_gsp as gsp
    from keras_gsp.data.preprocessing import preprocessing_of
    from keras_gsp.retrieval.serving.artefact_facts import MOST
    from keras_gsp.storage.checksums import write_checksums
    from keras_gsp.storage.whole import whole_folder

    if gallery.images is not None:
        # A dozen images that the export embeds again; the pixels of a data set
        # in memory may be crops already.
        options["canaries"] = None
        if getattr(preprocessing_of(encoder), "crop_fraction", 1) == 1:
            few = slice(None, None, -(-len(gallery) // MOST))
            images = [encoded_image(x, "PNG") for x in gallery.images[few]]
            ids = index.ids()[few].tolist()
            options["canaries"] = dict(zip(ids, images, strict=True))
    retriever = gsp.retrieval.Retriever(encoder, index, folder=folder)
    with whole_folder(target, overwrite=overwrite) as aside:
        made = aside / "made"
        retriever.export(made, **options)
        for entry in made.iterdir():
            entry.rename(aside / entry.name)
        made.rmdir()
        if gallery.images is not None:
            np.savez_compressed(aside / IMAGES, images=gallery.images)
            write_checksums(aside)


if __name__ == "__main__":
    main()
