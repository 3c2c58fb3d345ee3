"""Shows runs in the browser: `python -m training.report runs/NAME`.

Writes one file that opens from disk, without network: scores with intervals,
paired differences of several runs, learning curves, the worst queries with
their neighbors and pooling weights, a map and classes.
"""

from tqdm import tqdm

from training.reports.report_page import ReportCommand, write_report
from training.runs.command_line import run_command


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("report", __doc__, ReportCommand, _report, arguments)


def _report(command):
    with tqdm(desc="report", bar_format="{desc}: {elapsed}") as bar:
        written, notes = write_report(
            command, lambda step: bar.set_description(f"report: {step}")
        )
    for note in notes:
        print(f"note: {note}")
    for path in written:
        print(f"{path}: written\nNext: open it in a browser")


if __name__ == "__main__":
    main()
