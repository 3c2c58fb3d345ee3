"""The command line of a campaign."""

import sys
from collections.abc import Callable, Iterable

import tyro

from training.research.report import CommandSettings, Table, run_benchmark


def run_campaign(
    name: str,
    title: str,
    about: str | None,
    kind: type[CommandSettings],
    measure: Callable[..., Iterable[Table]],
    arguments: list[str] | None,
) -> list[Table]:
    """Runs the campaign `name` with the options of its command line.

    `title` may name settings in braces; `about` is the module's docstring.
    Returns the tables.
    """
    settings = tyro.cli(
        kind,
        prog=f"python -m training.research.campaigns.{name}",
        description=about,
        args=arguments,
    )
    try:
        return run_benchmark(
            f"campaigns.{name}",
            title.format(**vars(settings)),
            about,
            settings,
            measure,
            kind="campaign",
        )
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
