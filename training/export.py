"""Exports a run: `python -m training.export runs/NAME --index exact`.

With `--codes binary` it also searches by short codes; `--format onnx
--quantization int8` writes small weights; with `--license apache-2.0` the model
card names the license, as hubs expect.
"""

import shlex

from training.runs.command_line import run_command
from training.runs.export_run import Export, export_run


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("export", __doc__, Export, _export, arguments)


def _export(export):
    export_run(export)
    print(f"{export.target}: written")
    path = str(export.target)
    if export.format != "saved_model":
        step = f"keras_gsp.retrieval.PortableEncoder({path!r}).embed(images)"
    elif export.index == "none":
        step = f"tensorflow.saved_model.load({path!r})"
    else:
        word = shlex.quote(path)
        step = (
            f"python -m training.search {word} IMAGE\n"
            f"      python -m training.browse {word} --open"
        )
    print(f"Next: {step}")


if __name__ == "__main__":
    main()
