"""Embeddings for other tools: TensorBoard's projector, embedding explorers."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from training.reports.embedding_map import embedding_map
from training.reports.page_pictures import shrunk
from training.reports.searched import Searched
from training.runs.run_directory import write_text

SPRITE = 8192
"""Largest side of a projector's sheet of images, pixels."""
TILE = 64
"""Largest side of an image in these files, pixels."""


def embedding_table(
    searched: Searched,
) -> tuple[np.ndarray, dict[str, list], np.ndarray]:
    """What is known of every image of a run's search.

    Returns:
        Embeddings, columns (name -> one value for each image), and small
        images, as `write_projector` and `write_parquet` take them.
    """
    images = searched.images
    places, _ = embedding_map(searched.embeddings, "pca")
    scores = np.full(len(images), np.nan)
    scores[: images.num_queries] = searched.by_query["map_at_r"]
    is_query = np.arange(len(images)) < images.num_queries
    columns = {
        "class": [images.class_of(i) for i in range(len(images))],
        "image_name": images.names,
        "side": [
            ("query" if images.gallery_start else "test") if one else "gallery"
            for one in is_query
        ],
        "map_at_r": scores.tolist(),
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
    }
    tiles = [shrunk(pixels, TILE) for pixels in images.batches()]
    return searched.embeddings, columns, np.concatenate(tiles)


def write_projector(
    folder: Path,
    embeddings: np.ndarray,
    columns: dict[str, list],
    tiles: np.ndarray,
) -> None:
    """Writes a folder that `tensorboard --logdir` opens as a projector.

    Args:
        folder: Folder to make; files of an earlier report are replaced.
        embeddings: (images, size).
        columns: What is known of each image, name -> one value for each.
        tiles: (images, height, width, 3), uint8, what stands at its point.
    """
    from google.protobuf import text_format
    from tensorboard.plugins import projector

    folder.mkdir(parents=True, exist_ok=True)
    np.asarray(embeddings, "<f4").tofile(folder / "embeddings.bytes")
    names = list(columns)
    lines = ["\t".join(names)] if len(names) > 1 else []
    lines += [
        "\t".join(_in_a_cell(value) for value in row)
        for row in zip(*columns.values(), strict=True)
    ]
    write_text(folder / "metadata.tsv", "\n".join(lines) + "\n")
    config = projector.ProjectorConfig()
    entry = config.embeddings.add()
    entry.tensor_name = "embeddings"
    entry.tensor_path = "embeddings.bytes"
    entry.tensor_shape.extend(embeddings.shape)
    entry.metadata_path = "metadata.tsv"
    count, height, width = tiles.shape[:3]
    side = int(np.ceil(np.sqrt(count)))
    if side * max(height, width) <= SPRITE:
        sheet = np.full((side * height, side * width, 3), 255, "uint8")
        for place, tile in enumerate(tiles):
            top, left = place // side * height, place % side * width
            sheet[top : top + height, left : left + width] = tile
        Image.fromarray(sheet).save(folder / "sprite.png")
        entry.sprite.image_path = "sprite.png"
        entry.sprite.single_image_dim.extend([width, height])
    text = text_format.MessageToString(config)
    write_text(folder / "projector_config.pbtxt", text)


def write_parquet(
    path: Path,
    embeddings: np.ndarray,
    columns: dict[str, list],
    tiles: np.ndarray,
) -> None:
    """Writes one row for each image: what is known, embedding, picture.

    The picture is a struct of `bytes` and `path`, as image data sets in this
    format keep theirs.

    Args:
        path: File to write.
        embeddings: (images, size).
        columns: Name -> one value for each image.
        tiles: (images, height, width, 3), uint8.

    Raises:
        ImportError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "A Parquet file needs pyarrow: pip install 'keras-gsp[parquet]'. "
            f"Received: {error}."
        ) from error
    size = embeddings.shape[1]
    values = pa.array(np.asarray(embeddings, "float32").reshape(-1))
    table = pa.table(
        {
            **{name: pa.array(values) for name, values in columns.items()},
            "embedding": pa.FixedSizeListArray.from_arrays(values, size),
            "image": pa.array(
                [{"bytes": _png(tile), "path": None} for tile in tiles],
                pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
            ),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


def _png(tile):
    contents = io.BytesIO()
    Image.fromarray(tile).save(contents, "PNG")
    return contents.getvalue()


def _in_a_cell(value):
    return " ".join(str(value).split()) or "-"
