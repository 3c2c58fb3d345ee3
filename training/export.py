"""Exports a run: `python -m training.export runs/NAME --index exact`."""

import sys

import tyro

from training.runs.export_run import Export, export_run
from training.runs.notes import printed_notes


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    try:
        export = tyro.cli(
            Export,
            prog="python -m training.export",
            description=__doc__,
            args=arguments,
        )
        with printed_notes():
            export_run(export)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(f"{export.target}: written")
    if export.format == "saved_model" and export.index != "none":
        print(
            f"Next: python -m training.search {export.target} IMAGE\n"
            f"      python -m training.browse {export.target} --open"
        )


if __name__ == "__main__":
    main()
