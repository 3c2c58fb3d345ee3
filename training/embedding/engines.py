"""Who embeds the shards: this process, or the workers of Ray."""

import os
import socket
from collections.abc import Iterator
from typing import Any

from training.embedding.shard_writer import ShardWriter

Items = list[dict[str, Any]]


def local_engine(items: Items, options: dict[str, Any]) -> Iterator[Any]:
    """Embeds shard after shard in this process.

    Args:
        items: shards with their numbers.
        options: of `ShardWriter`.

    Yields:
        What was written, in any order.
    """
    write = ShardWriter(**options)
    for item in items:
        yield write(item)


def ray_engine(
    items: Items,
    options: dict[str, Any],
    *,
    address: str | None,
    workers: int,
    cpus: float,
    gpus: float,
) -> Iterator[Any]:
    """Embeds shards in the workers of Ray; one that dies is replaced.

    Args:
        items: shards with their numbers.
        options: of `ShardWriter`.
        address: of a Ray cluster, such as "auto" or "ray://host:10001"; all
            its machines must see the images, the run and the output under
            the same paths. `None` starts Ray inside this process' machine.
        workers: encoders that work at once.
        cpus: processors of each.
        gpus: graphics processors of each.

    Yields:
        What was written, in any order.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: the cluster does not answer.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError(
            "`engine` ray needs Ray: pip install 'keras-gsp[ray]'; the local "
            f"engine works without it. Received: {error}."
        ) from error
    is_ours = not ray.is_initialized()
    if is_ours:
        _start(ray, address, workers, cpus)
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        # An image's error is its status; a shard's ends the run. The shard of
        # a worker that dies is given to the next, as Ray does by itself.
        context.max_errored_blocks = 0
        rows = ray.data.from_items(
            items, override_num_blocks=max(1, len(items))
        )
        found = rows.map(
            ShardWriter,  # type: ignore[arg-type]
            fn_constructor_kwargs=options,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=cpus,
            num_gpus=gpus or None,
        )
        yield from found.iter_rows()
    finally:
        if is_ours:
            ray.shutdown()


def _start(ray, address, workers, cpus):
    # What is embedded here is nobody else's business.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        # Shards are paths and counts: the store needs next to nothing.
        ray.init(
            num_cpus=max(1, int(-(-workers * cpus // 1)) + 1),
            object_store_memory=100 * 2**20,
            include_dashboard=False,
            runtime_env={"env_vars": {"PYTHONPATH": os.getcwd()}},
            **quiet,
        )
        return
    try:
        _check_answers(address)
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConnectionError(
            f"`address` must be a Ray cluster that answers. To start one: "
            f"ray start --head. Received: {address}: {error}."
        ) from error


def _check_answers(address):
    """Ray itself would try for five minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
