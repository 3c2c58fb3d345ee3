"""Embeds a collection: `python -m training.embed RUN --images FOLDER`.

Images are read, decoded and embedded shard by shard, in this process or in
Ray's workers, into Parquet files of id, label, embedding and status. The same
command continues a stopped one.
"""

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tqdm import tqdm

from training.recipes.settings import positive
from training.runs.command_line import run_command


@dataclass(frozen=True)
class EmbedCommand:
    """Writes the embeddings of a collection of images."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, or the file of an encoder that ends in .keras."""
    images: Path
    """A folder; a CSV file with the column path, or a Parquet file with path
    or image, and perhaps label and id."""
    output: Path = Path("embeddings")
    """Folder to write."""
    engine: Literal["local", "ray"] = "local"
    """This process, or Ray."""
    address: str | None = None
    """ray: a cluster, such as auto; by default Ray starts on this machine."""
    workers: Annotated[int, positive] = 1
    """ray: encoders that work at once."""
    cpus: float = 1.0
    """ray: processors of each worker."""
    gpus: float = 0.0
    """ray: GPUs of each worker."""
    shard_size: Annotated[int, positive] = 2048
    """Images of a shard, which is lost when a worker dies."""
    batch_size: Annotated[int, positive] = 64
    """Images embedded at once."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("embed", __doc__, EmbedCommand, _embed, arguments)


def _embed(command):
    start = time.perf_counter()
    manifest, num_new = embed(command)
    seconds = time.perf_counter() - start
    print(f"{command.output}: {manifest['num_images']} images")
    for status, count in manifest["statuses"].items():
        print(f"{count:>9}  {status}")
    if num_new:
        print(f"{num_new / seconds:.0f} images/s, {num_new} of them new")
    print(
        "Next: training.embedding.collection.read_embeddings"
        f"({str(command.output)!r}) yields them for an index"
    )


def embed(command: EmbedCommand) -> tuple[dict, int]:
    """Embeds the missing shards; returns the manifest and the new images."""
    from training.embedding.collection import begin, finish
    from training.embedding.engines import ShardWriter, ray_engine
    from training.embedding.sources import fingerprint, shards_of
    from training.runs.scoring import encoder_file

    encoder = encoder_file(command.run)
    crop = _crop_fraction(command.run)
    shards = shards_of(command.images, command.shard_size)
    plan = {
        "format": 1,
        "encoder": hashlib.sha256(encoder.read_bytes()).hexdigest(),
        "crop_fraction": crop,
        "images": fingerprint(shards),
        "num_shards": len(shards),
        "shard_size": command.shard_size,
        "batch_size": command.batch_size,
    }
    missing = begin(command.output, plan)
    items: list[dict[str, Any]] = [
        {"number": number, "shard": shards[number]} for number in missing
    ]
    options: dict[str, Any] = {
        "encoder": str(encoder.resolve()),
        "crop_fraction": crop,
        "output": str(command.output.resolve()),
        "batch_size": command.batch_size,
    }
    written: Any = ()
    if command.engine == "ray" and items:
        options["threads"] = max(1, int(command.cpus))
        names = "address", "workers", "cpus", "gpus"
        cluster = {name: getattr(command, name) for name in names}
        written = ray_engine(items, options, **cluster)
    elif items:
        written = map(ShardWriter(**options), items)
    num_new = sum(item["shard"]["rows"] for item in items)
    with tqdm(total=num_new, unit="image") as bar:
        for done in written:
            bar.update(done["rows"])
    return finish(command.output, plan), num_new


def _crop_fraction(run):
    """Returns the side of the embedded square over the shorter side."""
    from training.runs.scoring import load_preprocessing

    if run.suffix == ".keras":
        return "auto"  # as the file says
    expected = load_preprocessing(run)
    return 1.0 if expected is None else expected.crop_fraction


if __name__ == "__main__":
    main()
