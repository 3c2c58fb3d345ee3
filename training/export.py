"""Exports a run: `python -m training.export runs/NAME --index exact`."""

import shlex

from training.runs.command_line import run_command
from training.runs.export_run import Export, export_run


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("export", __doc__, Export, _export, arguments)


def _export(export):
    export_run(export)
    print(f"{export.target}: written")
    if export.format == "saved_model" and export.index != "none":
        word = shlex.quote(str(export.target))
        print(
            f"Next: python -m training.search {word} IMAGE\n"
            f"      python -m training.browse {word} --open"
        )
    else:
        print("Next: load it as docs/guides/serve.md shows")


if __name__ == "__main__":
    main()
