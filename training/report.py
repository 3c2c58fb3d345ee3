"""Shows runs in the browser: `python -m training.report runs/NAME`.

Writes one file that opens from disk, without network. It begins with the
verdict, one table and three good and three bad queries; below are all scores,
learning curves, a map of the embeddings, classes and settings.
"""

import datetime
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from tqdm import tqdm

from training.browsing.page_parts import rendered_page
from training.pictures.encoding import data_address
from training.reports.run_reading import read_runs, settings_rows
from training.runs.command_line import run_command
from training.runs.run_directory import write_text

# First line of a report; a file without it is not replaced.
REPORT_MARK = "<!-- keras_gsp report -->"
PICTURE_SIDE = 112  # of queries and neighbors, pixels
MAP_POINTS = 1_000  # about how many images are on the map
THUMBNAIL_SIDE = 48  # of the images on the map, pixels


@dataclass(frozen=True)
class ReportCommand:
    """Writes one HTML file about one run, or several side by side."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories; those that differ only in their seed are one method.
    Each method is compared with the same network with average pooling, if it
    is among them, otherwise with the first."""
    output: Path | None = None
    """HTML file; by default report.html in the run's folder, of several
    runs beside the first one's."""
    map: Literal["tsne", "pca"] = "tsne"
    """How embeddings are laid out."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("`runs` must name a run. Received: none.")

    @property
    def target(self) -> Path:
        """The file to write."""
        if self.output is not None:
            return self.output
        is_one = len({path.resolve() for path in self.runs}) == 1
        folder = self.runs[0] if is_one else self.runs[0].parent
        return folder / "report.html"


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("report", __doc__, ReportCommand, _report, arguments)


def _report(command):
    for note in write_report(command):
        print(f"note: {note}")
    word = shlex.quote(command.target.absolute().as_uri())
    print(f"{command.target}: written\nNext: python -m webbrowser {word}")


def write_report(command: ReportCommand) -> list[str]:
    """Reads runs and writes their page.

    Returns sentences on what is missing. Raises `FileExistsError` if the
    target is no report, `ValueError` if none of the folders is a run.
    """
    _check_target(command.target)
    runs, notes = read_runs(command.runs)
    if not runs:
        raise ValueError(
            "A report needs at least one run directory. Received: "
            + " ".join(notes)
        )
    from training.reports import failures, score_table
    from training.reports.verdict import compared, headline, verdict

    methods = score_table.methods_of(runs)
    names = [method.name for method in methods]
    searched = _searches(runs)
    rows = score_table.score_rows(methods, searched, notes)
    shown = _shown(methods, headline(rows), searched)
    data: dict[str, Any] = {"runs": list(shown), "methods": names}
    data["curves"] = _curves(methods)
    if shown:
        data |= _pictured(shown, command.map, notes)
    page: dict[str, Any] = {
        "verdict": verdict(methods, rows),
        "compared": compared(methods, searched),
        "made": datetime.datetime.now().isoformat(" ", "minutes"),
        "runs": runs,
        "methods": methods,
        "settings": settings_rows([method.recipe for method in methods]),
        "measures": score_table.MEASURES,
        "rows": rows,
        "shown": list(shown),
        "notes": notes
        + [f"{run.name}: {note}" for run in runs for note in run.notes],
    }
    if shown:
        page["classes"] = failures.class_rows(list(shown.values()))
    command.target.parent.mkdir(parents=True, exist_ok=True)
    write_text(command.target, _rendered(page, data))
    return page["notes"]


def _check_target(path):
    is_mine = path.is_file() and REPORT_MARK.encode() in path.read_bytes()[:200]
    if path.exists() and not is_mine:
        raise FileExistsError(
            "`output` must be new, or an earlier report. "
            f"Received: {path}, which is neither."
        )


def _searches(runs):
    """Searches the images of every run that can; reads each data set once."""
    import tensorflow as tf

    from training.reports.searched import scored_images, search_all
    from training.runs.scoring import load_encoder

    read: dict[Any, Any] = {}
    searched = {}
    for run in tqdm(runs, desc="Embedding the images of runs"):
        if run.recipe is None:
            continue
        key = run.recipe.images
        try:
            encoder = load_encoder(run.directory)
            if key not in read:
                read[key] = scored_images(run.recipe)
            searched[run.name] = search_all(encoder, read[key])
        except (ValueError, OSError, ImportError, tf.errors.OpError) as error:
            words = " ".join(str(error).split())
            run.notes.append(f"No image could be embedded: {words[:400]}")
            continue
        run.notes += read[key].notes
        written = (run.scores or {}).get("map_at_r")
        found = float(np.nanmean(searched[run.name].by_query["map_at_r"]))
        if written is not None and abs(found - written) > 1e-3:
            run.notes.append(
                f"scores.json has a MAP@R of {written:.4f}, the encoder now "
                f"reaches {found:.4f}: the images or the encoder have changed."
            )
    return searched


def _shown(methods, row, searched):
    """Searches whose queries are shown: the baseline's, then the method's."""
    names = [] if row is None else [row["name"]]
    if names and row["gains"]:
        names.insert(0, row["against"])
    found = {one.name: one.searches(searched) for one in methods}
    return {name: found[name][0] for name in names if found.get(name)}


def _pictured(shown, method, notes):
    """Returns what the page draws: queries, a map, and their images."""
    from training.reports.failures import chosen_queries, shown_search

    searches = list(shown.values())
    images = searches[0].images
    lists = chosen_queries(searches)
    queries = sorted({query for some in lists.values() for query in some})
    answers = []
    for name, one in shown.items():
        own: list[str] = []
        answers.append(shown_search(one, queries, own))
        notes += [f"{name}: {note}" for note in own]
    points, names = _whole_classes(images.labels), images.names
    total = len(images.labels)
    if len(points) < total:
        notes.append(
            f"The map shows {len(points)} of {total} images, whole classes "
            "chosen at random."
        )
    pictured = set(queries)
    for search in answers:
        for answer in search["queries"].values():
            pictured.update(answer["neighbors"])
    return {
        "lists": lists,
        "searches": answers,
        "points": points,
        "maps": [embedding_map(s.embeddings[points], method) for s in searches],
        "thumbnails": _addresses(images, points, THUMBNAIL_SIDE),
        "pictures": _addresses(images, sorted(pictured), PICTURE_SIDE),
        "classes": list(images.images.class_names),
        "images": {
            image: [int(images.labels[image]), names[image]]
            for image in sorted(pictured.union(points))
        },
    }


def _whole_classes(labels):
    """Positions of all images of random classes, the same every time."""
    sizes = np.bincount(labels)
    order = np.random.default_rng(0).permutation(len(sizes))
    count = max(1, int(np.sum(np.cumsum(sizes[order]) <= MAP_POINTS)))
    chosen = np.flatnonzero(np.isin(labels, order[:count]))
    return chosen[:MAP_POINTS].tolist()


def embedding_map(embeddings: np.ndarray, method: str) -> dict[str, Any]:
    """Lays embeddings `(images, size)` out in the plane.

    Dict with `x` and `y`, lists of values in [-1, 1], and `words`, a title.
    """
    # t-SNE needs neighbors, and more than one axis.
    if method == "pca" or min(embeddings.shape) < 5:
        centered = embeddings - embeddings.mean(axis=0)
        left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
        positions = np.zeros((len(embeddings), 2))
        positions[:, : len(sizes)] = (left * sizes)[:, :2]
        variances = np.square(sizes)
        share = variances[:2].sum() / max(variances.sum(), 1e-12)
        words = f"PCA, {share:.0%} of the variance"
    else:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits

        perplexity = min(30.0, (len(embeddings) - 1) / 3)
        # Threads cost more than they save for so few points.
        with threadpool_limits(1):
            positions = TSNE(
                perplexity=perplexity, init="pca", random_state=0
            ).fit_transform(embeddings)
        words = f"t-SNE, perplexity {perplexity:.0f}"
    positions -= (positions.max(axis=0) + positions.min(axis=0)) / 2
    x, y = np.round(positions / max(np.abs(positions).max(), 1e-12), 4).T
    return {"words": words, "x": x.tolist(), "y": y.tolist()}


def _curves(methods):
    curves = []
    for number, method in enumerate(methods):
        for run in method.runs:
            names = dict.fromkeys(name for line in run.history for name in line)
            values = {n: [line.get(n) for line in run.history] for n in names}
            if steps := values.pop("step", None):
                curve = {"run": run.name, "method": number, "steps": steps}
                curves.append(curve | {"values": values})
    return curves


def _addresses(images, chosen, side):
    """Maps the numbers of images to their `data:` addresses."""
    found = zip(chosen, images.pixels(chosen), strict=True)
    return {image: data_address(pixels, side) for image, pixels in found}


def _rendered(page, data):
    from plotly.offline import get_plotlyjs

    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # No text of a data set may end the script element that holds it.
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return rendered_page(
        Path(__file__).parent / "reports" / "templates" / "report.html",
        mark=REPORT_MARK,
        data=text,
        plotly=get_plotlyjs(),
        **page,
    )


if __name__ == "__main__":
    main()
