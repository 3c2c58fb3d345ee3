"""Searches a collection in the browser: `python -m training.browse FOLDER`.

The page needs Gradio (`pip install "keras-gsp[browse]"`) and no network, and is
served to this machine alone.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from training.runs.command_line import run_command


@dataclass(frozen=True)
class BrowseCommand:
    """Serves a page that searches a collection, to this machine only."""

    model: Annotated[Path, tyro.conf.Positional]
    """Folder that `Retriever.save` wrote, or a run directory, whose test
    images are embedded first."""
    data_dir: Path | None = None
    """Folder of the photographs of a saved retriever, to show them."""
    open: bool = False
    """Open the page in the browser."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("browse", __doc__, BrowseCommand, _serve, arguments)


def _serve(command):
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio as gr  # before minutes of embedding

    from training.reports.browse_page import page

    with tempfile.TemporaryDirectory() as folder:
        page(_retriever(command, folder)).launch(
            server_name="127.0.0.1",
            inbrowser=command.open,
            max_file_size="50mb",
            show_error=True,
            footer_links=[],
            theme=gr.themes.Default(font="sans-serif", font_mono="monospace"),
        )


def _retriever(command, folder):
    """Loads a saved retriever, or embeds the test images of a run."""
    import keras_gsp as gsp
    from training.recipes.data import read_recipe
    from training.runs.run_directory import RunDirectory
    from training.runs.scoring import load_encoder

    run, load = RunDirectory(command.model), gsp.retrieval.Retriever.load
    if not run.settings.exists():
        return load(command.model, folder=command.data_dir)
    images = read_recipe(run.read_recipe().with_(cache_features=False)).test
    paths = images.paths
    if paths is None:
        from PIL import Image

        paths = [f"{folder}/{i}.png" for i in range(len(images))]
        for path, pixels in zip(paths, images.images, strict=True):
            Image.fromarray(pixels).save(path)
    retriever = gsp.retrieval.Retriever(
        load_encoder(run),
        gsp.retrieval.ExactIndex(),
        folder=os.path.commonpath(paths),
    )
    retriever.add(paths, images.names)
    return retriever


if __name__ == "__main__":
    main()
