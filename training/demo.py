"""GSP on a pretrained network that meets clutter: `make demo`.

A small network learned single characters. Frozen, it has to find letters among
symbols: with average pooling (GAP), with GSP, and with a second look at the
window where GSP pooled (`gsp.models.TwoLooks`), first with the network's own
features, then with a head trained on the windows. The letters and symbols that
are scored were never seen. Ends with a table, an export, a search and a report.
A demo that was stopped continues.
"""

import dataclasses
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.recipe import Recipe, named
from training.runs.command_line import run_command
from training.runs.run_directory import RunDirectory, write_text
from training.runs.scoring import load_encoder
from training.runs.train_run import train_run

# GSP takes few features, chosen sharply: a letter is a quarter of the canvas.
METHODS: dict[str, dict[str, Any]] = {
    "GAP": {"pooling": "gap"},
    "GSP": {
        "pooling": "gsp",
        "transport_ratio": 0.1,
        "inverse_temperature": 40.0,
    },
}
# A letter fills a window of half the canvas.
WINDOW, SIDE = 0.5, 24
SMOKE = {"steps": 20, "steps_per_evaluation": 20}
NUM_QUERIES, NUM_SHOWN = 3, 5
"""Images that the export is searched with, and neighbors printed of each."""
MEASURES = ["map_at_r", "precision_at_1"]


@dataclass(frozen=True)
class DemoCommand:
    """Trains GAP, GSP and a second look among clutter, and shows them."""

    runs: Path = Path("runs/demo")
    """Folder for everything that the demo makes."""
    smoke: bool = False
    """One training of 20 steps each: does it run at all?"""

    @property
    def recipes(self) -> dict[str, Recipe]:
        """The recipe of each method."""
        short = SMOKE if self.smoke else {}
        return {method: _recipe(method, **short) for method in METHODS}


def _recipe(method, **settings):
    """A row of the table: contrastive loss, 800 steps of 16 x 4.

    The learning rate is the best of five (factor 3) on validation letters, for
    both methods, as in docs/results/clutter.md.
    """
    common = {
        "backbone_weights": "characters",
        "frozen": "all",
        "cache_features": True,
        "loss_arguments": {"negative_margin": 0.3841},
        "steps": 800,
        "steps_per_evaluation": 100,
        "learning_rate": 6e-3,
        "fall_share": 1.0,
    }
    return named("glyphs").with_(**common | METHODS[method] | settings)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("demo", DemoCommand.__doc__, DemoCommand, run_demo, arguments)


def run_demo(command: DemoCommand) -> None:
    """Trains, compares, exports, searches and reports."""
    start = time.monotonic()
    folder = command.runs / "smoke" if command.smoke else command.runs
    # TensorFlow takes seconds to import: not for an error or for --help.
    from training import report
    from training.recipes.data import check_sources, load_splits

    directories: dict[str, RunDirectory] = {}
    features: Any = None
    for method, recipe in command.recipes.items():
        check_sources(recipe)
        # The frozen network's features of the images, of all methods.
        features = features or load_splits(recipe)
        run = RunDirectory(folder / f"frozen-{method.lower()}-0")
        _train(recipe, features, run, method)
        directories[method] = run
    splits = load_splits(recipe.with_(cache_features=False))
    images = splits.test
    looks = second_looks(directories["GSP"], splits)
    table = results_table(directories, looks)
    write_text(folder / "results.md", table)
    print(
        f"\n{len(images)} images of {images.num_classes} unseen letters among "
        f"unseen symbols:\n\n{table}"
    )
    export_and_search(looks[-1], images, folder)
    runs = [str(run.path) for run in directories.values()]
    report.main([*runs, "--output", str(folder / "report.html")])
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} seconds in all. Everything is in {folder}/")


@dataclass(frozen=True, eq=False)
class Look:
    """A second look: name, encoder, rows of the test images and scores."""

    name: str
    encoder: Any
    rows: np.ndarray
    scores: dict[str, Any]


def second_looks(run: RunDirectory, splits: Any) -> list[Look]:
    """Embeds the window where GSP pooled: not trained, and with a head."""
    import keras_gsp as gsp
    from training.recipes.learner import build_backbone

    looks = []
    first, recipe = load_encoder(run), run.read_recipe()
    whole = recipe.with_(cache_features=False)
    raw = gsp.models.build_encoder(
        build_backbone(whole, (SIDE, SIDE, 3)), embedding_size=None
    )
    options: dict[str, Any] = {"window": WINDOW, "combine": "second"}
    finder = gsp.models.TwoLooks(first, raw, **options)
    head = window_head(run, finder, recipe, splits)
    for name, encoder in (
        ("GSP's window, not trained", finder),
        ("GSP's window, a head", gsp.models.TwoLooks(first, head, **options)),
    ):
        rows = encoder.predict(splits.test.images, verbose=0)
        scores = gsp.metrics.retrieval_scores(rows, splits.test.labels)
        looks.append(Look(name, encoder, rows, scores))
    return looks


def window_head(
    run: RunDirectory, finder: Any, recipe: Recipe, splits: Any
) -> Any:
    """Trains a head on the windows, which the network takes as characters."""
    from training.recipes.features import with_features

    directory = RunDirectory(run.path / "window")
    recipe = _recipe(
        "GAP",
        seed=recipe.seed,
        steps=recipe.steps,
        steps_per_evaluation=recipe.steps_per_evaluation,
        data_arguments={"canvas_size": SIDE},
    )
    if not directory.is_finished:
        windows = splits.mapped(partial(_windows, finder))
        train_run(recipe, with_features(recipe, windows), directory)
    return load_encoder(directory)


def _windows(finder, images):
    """The windows of all images, as an image set."""
    starts = range(0, len(images), 500)
    parts = [finder.crops(images.images[i : i + 500]) for i in starts]
    pixels = np.rint(np.concatenate(parts)).clip(0, 255).astype("uint8")
    return dataclasses.replace(images, images=pixels)


def export_and_search(look: Look, images: Any, folder: Path) -> None:
    """Exports the best encoder and searches it, as `training.search` does.

    The gallery holds the queries, so each finds itself first.
    """
    from PIL import Image

    import keras_gsp as gsp
    from training import search
    from training.export import write_model

    model = folder / "saved_model"
    if not model.exists():
        ids = np.array([f"test/{i}" for i in range(len(images))])
        index = gsp.retrieval.ExactIndex(look.rows, images.names, ids)
        write_model(model, look.encoder, images, index)
    queries = folder / "queries"
    queries.mkdir(parents=True, exist_ok=True)
    files = []
    firsts = np.unique(images.labels, return_index=True)[1]
    for position in firsts[-NUM_QUERIES:]:
        files.append(str(queries / f"test-{position}.png"))
        Image.fromarray(images.images[position]).save(files[-1])
    print(f"{look.name} exported to {model}. training.search loads it")
    print("and finds (distance, class, image):", flush=True)
    picture = str(folder / "neighbors.png")
    options = ["--top", str(NUM_SHOWN), "--picture", picture]
    search.main([str(model), *files, *options])


def results_table(
    directories: dict[str, RunDirectory], looks: list[Look]
) -> str:
    """Markdown table, doing nothing first, the best row last."""
    scores = {name: run.read_scores() for name, run in directories.items()}
    raw = scores["GAP"]["raw"]
    scores |= {look.name: look.scores for look in looks}
    rows = [
        ("raw features, not trained", raw[raw["best"]]),
        ("whitened, not trained", raw["whitened"]),
        *sorted(scores.items(), key=lambda row: row[1]["map_at_r"]),
    ]
    lines = [
        "| network | method | MAP@R | P@1 |",
        "| --- | --- | ---: | ---: |",
    ]
    for name, values in rows:
        numbers = " | ".join(f"{values[measure]:.3f}" for measure in MEASURES)
        lines.append(f"| frozen | {name} | {numbers} |")
    return "\n".join(lines) + "\n"


def _train(recipe, splits, directory, label):
    if not directory.is_finished:
        train_run(recipe, splits, directory, label=label)
        return
    if directory.read_recipe() != recipe:
        raise FileExistsError(
            "The demo's folder must hold runs of the demo's own recipes. "
            f"Received: {directory.path}, a finished run of another one. "
            "Choose another --runs."
        )
    print(f"{label}: finished before, kept")


if __name__ == "__main__":
    main()
