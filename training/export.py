"""Exports a run: `python -m training.export runs/NAME --index exact`."""

import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from training.recipes.ranges import Range, check_fields, positive, share
from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory

DEFAULT_FOLDER = Path("saved_models")


@dataclass(frozen=True)
class ExportCommand:
    """Writes a run's encoder, with a gallery to search, as a SavedModel."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, for example `runs/glyphs-gsp,seed=1`."""
    format: Literal["saved_model", "onnx", "litert"] = "saved_model"
    """A SavedModel that decodes, embeds and searches; or the encoder alone as
    a file for other engines, with the gallery as plain arrays."""
    quantization: Literal["float16", "int8"] | None = None
    """litert: smaller weights; the MAP@R with them is measured and stated."""
    index: Literal["exact", "scann", "none"] = "exact"
    """How the gallery is searched; none exports the encoder alone."""
    output: Path | None = None
    """Folder to make; by default saved_models/NAME."""
    split: Literal["test", "validation", "train"] = "test"
    """Side of the run's data set that becomes the gallery; of test, the
    gallery where the data set brings one."""
    images_per_class: Annotated[int | None, positive] = None
    """At most so many images of each class in the gallery."""
    false_accept_rate: Annotated[float | None, Range(above=0, below=1)] = None
    """With a gallery: keep a threshold for this share of false accepts,
    calibrated on the run's validation classes; the searches of a SavedModel
    then answer `is_match` too."""
    data_dir: str | None = None
    """Where the data set is; by default where the run had it."""
    neighbors: Annotated[int, positive] = 10
    """Neighbors that a search returns."""
    held_out: Annotated[float, Range(above=0, below=1)] = 0.1
    """scann: share of the images that are left out of the gallery to measure
    the index with, where the data set has no queries of its own."""
    minimum_recall: Annotated[float, share] = 0.95
    """scann: share of the true neighbors that must be found."""
    warn: bool = False
    """scann: only warn below the minimum recall."""
    overwrite: bool = False
    """Replace what is at `output`."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.quantization is not None and self.format != "litert":
            raise ValueError(
                "`quantization` is for format=litert. Received: "
                f"quantization={self.quantization}, format={self.format}."
            )
        if self.format != "saved_model" and self.index == "scann":
            raise ValueError(
                "`index` must be exact or none with another format than "
                f"saved_model. Received: index=scann, format={self.format}."
            )
        if self.false_accept_rate is not None and self.index == "none":
            raise ValueError(
                "`false_accept_rate` needs a gallery. Received: index=none, "
                f"false_accept_rate={self.false_accept_rate}."
            )

    @property
    def line(self) -> str:
        """The command that makes this export again from its run."""
        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("run", "overwrite", "data_dir", "output")
            and getattr(self, field.name) != field.default
        }
        options = " ".join(
            f"--{name.replace('_', '-')} {value}"
            for name, value in given.items()
        )
        return f"python -m training.export runs/{self.run.name} {options}"

    @property
    def target(self) -> Path:
        """The folder that is made."""
        return self.output or DEFAULT_FOLDER / self.run.name


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    try:
        command = tyro.cli(
            ExportCommand,
            prog="python -m training.export",
            description=__doc__,
            args=arguments,
        )
        _check_free(command)
        export_run(command)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(f"{command.target}: written")


def export_run(command: ExportCommand) -> None:
    """Loads a run's encoder and writes it, with its gallery."""
    import keras_gsp as gsp
    from training.artefacts.gallery_export import export_gallery
    from training.runs.scoring import load_encoder

    directory = RunDirectory(command.run)
    recipe = replace(directory.read_recipe(), cache_features=False)
    if command.data_dir is not None:
        recipe = replace(recipe, data_dir=command.data_dir)
    encoder = load_encoder(directory)
    options: dict[str, Any] = {
        "crop_fraction": crop_fraction(recipe),
        "metadata": run_metadata(directory) | {"command": command.line},
        "overwrite": command.overwrite,
    }
    if command.index == "none" and command.format != "saved_model":
        from training.artefacts.portable_export import export_portable
        from training.recipes.data import load_splits

        splits = load_splits(recipe)
        export_portable(command, recipe, encoder, options, splits)
    elif command.index == "none":
        gsp.retrieval.export_encoder(encoder, command.target, **options)
    else:
        export_gallery(command, recipe, encoder, options)


def crop_fraction(recipe: Recipe) -> float:
    """Side of the centered square that images of a recipe are scored with."""
    if recipe.crop_size is None:
        return 1.0
    from training.recipes.batches import resize_of

    return recipe.crop_size / resize_of(recipe)


def run_metadata(directory: RunDirectory) -> dict:
    """Recipe, environment and scores of a run, for the export."""
    metadata: dict[str, Any] = {"run": directory.path.name}
    metadata |= directory.read_settings()
    if directory.is_finished:
        metadata["scores"] = directory.read_scores()
    return metadata


def _check_free(command):
    """Says at once what would be said after minutes of embedding."""
    if command.target.exists() and not command.overwrite:
        raise FileExistsError(
            "`output` must be new. "
            f"Received: {command.target}, which exists. Choose another, or "
            "pass --overwrite to replace it."
        )


if __name__ == "__main__":
    main()
