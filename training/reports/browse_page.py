"""A page that searches a `Retriever`: neighbors, why they are near, a map.

For a Space of Gradio: `page(Retriever.load("retriever", folder="photos"))`
and `.launch()` are the whole `app.py`.
"""

import io
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from PIL import Image

from keras_gsp.data import Preprocessing
from training.pictures.explanation import draw_explanation

SIDE = 320  # of the pictures on the page, pixels
LISTED = 2_000  # items in the list and on the map
HEADERS = ["file", "label", "distance", "match"]


def page(retriever: Any) -> gr.Blocks:
    """Returns the Gradio application of a `Retriever`."""
    ids = [str(name) for name in retriever.index.ids()[:LISTED]]
    rows, labels = retriever.index.items(ids)[:2]
    labels = np.asarray(labels).astype(str)
    with gr.Blocks(title="Search by photograph") as blocks:
        gr.Markdown(f"### {len(retriever):,} items")
        with gr.Tab("Search"), gr.Row():
            _search_tab(_Search(retriever), ids, labels)
        with gr.Tab("Map"):
            gr.ScatterPlot(
                _principal_axes(rows, ids, labels),
                x="first",
                y="second",
                color="label",
                tooltip="all",
            )
    return blocks


def _search_tab(search, ids, labels):
    corners, query = gr.State([]), gr.State()
    with gr.Column(scale=1, min_width=260):
        image = gr.Image(
            type="pil", label="Photograph (two clicks: a part of it)"
        )
        part = gr.Image(label="Part", interactive=False, height=140)
        item = gr.Dropdown(["", *ids], label="or an item", value="")
        k = gr.Slider(1, 100, 12, step=1, label="Neighbors")
        names = sorted({*labels.tolist()} - {""})
        classes = gr.Dropdown(names, label="Only of classes", multiselect=True)
        go = gr.Button("Search", variant="primary")
    with gr.Column(scale=2, min_width=260):
        pictures = gr.Gallery(
            label="Nearest first: select one to see why",
            columns=4,
            allow_preview=False,
        )
        reason = gr.Image(label="Why it is near", interactive=False)
        table = gr.Dataframe(headers=HEADERS, type="array")
    image.upload(lambda: ([], None), None, [corners, part])
    image.select(search.corner, [image, corners], [corners, part])
    asked = [image, corners, item, k, classes]
    go.click(search.neighbors, asked, [pictures, table, query])
    pictures.select(search.why, [table, query], reason)


class _Search:
    """What the page does with a retriever."""

    def __init__(self, retriever):
        self.retriever = retriever

    def neighbors(self, image, corners, item, k, classes):
        """Pictures and a table of what is near, and the query."""
        query = self._file(item) if item else image
        if query is None:
            raise gr.Error("Choose a photograph or an item first.")
        neighbors = self.retriever.search(
            query,
            int(k),
            box=_box(corners) if not item and len(corners) == 2 else None,
            where={"label": classes} if classes else None,
        )
        table = _table(neighbors)
        pictures = [
            (thumbnail(self._file(row[0])), f"{rank}: {row[2]:.3f}")
            for rank, row in enumerate(table, 1)
        ]
        return pictures, table, query

    def corner(self, image, corners, event: gr.SelectData):
        """The last two clicks, and the part of the image between them."""
        corners = [*corners, event.index][-2:]
        if len(corners) < 2:
            return corners, None
        x, y, width, height = _box(corners)
        return corners, image.crop((x, y, x + width, y + height))

    def why(self, table, query, event: gr.SelectData):
        """The picture of why a neighbor is near to the query."""
        contents, drawn = io.BytesIO(), io.BytesIO()
        if isinstance(query, Path):
            contents.write(query.read_bytes())
        else:
            query.convert("RGB").save(contents, "PNG")
        neighbor = self._file(table[event.index][0]).read_bytes()
        encoder = self.retriever.encoder
        draw_explanation(drawn, encoder, contents.getvalue(), neighbor)
        return Image.open(drawn)

    def _file(self, name):
        return Path(self.retriever.folder or ".", name)


def _box(corners):
    (x, y), (other_x, other_y) = corners
    return min(x, other_x), min(y, other_y), abs(x - other_x), abs(y - other_y)


def _table(neighbors):
    count = int(neighbors.counts[0])
    matches = neighbors.is_match
    matches = [[""] * count] if matches is None else matches
    columns = neighbors.ids, neighbors.labels, neighbors.distances, matches
    rows = zip(*(list(column[0][:count]) for column in columns), strict=True)
    return [[str(a), str(b), round(float(c), 4), str(d)] for a, b, c, d in rows]


def thumbnail(file: Path) -> Any:
    """Returns the small upright picture of a file, gray without it."""
    if not file.is_file():
        return Image.new("RGB", (SIDE, SIDE), (200, 200, 200))
    small = Preprocessing(None, SIDE)
    return Image.fromarray(small.decode(file.read_bytes()))


def _principal_axes(rows, ids, labels):
    import pandas

    rows = np.asarray(rows, "float32") - np.mean(rows, axis=0)
    left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
    first, second = np.pad(left * sizes, ((0, 0), (0, 2)))[:, :2].T
    label = np.where(labels == "", "unlabeled", labels)
    columns = {"first": first, "second": second, "file": ids, "label": label}
    return pandas.DataFrame(columns)
