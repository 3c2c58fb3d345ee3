"""Exports a run: `python -m training.export runs/NAME --index exact`."""

from training.runs.command_line import run_command
from training.runs.export_run import Export, export_run


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("export", __doc__, Export, _export, arguments)


def _export(export):
    export_run(export)
    print(f"{export.target}: written")
    if export.format == "saved_model" and export.index != "none":
        print(
            f"Next: python -m training.search {export.target} IMAGE\n"
            f"      python -m training.browse {export.target} --open"
        )


if __name__ == "__main__":
    main()
