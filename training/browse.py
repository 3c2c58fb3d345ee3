"""Searches an export in the browser: `python -m training.browse MODEL`."""

import socket
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from training.browsing.exports import exported_folder
from training.recipes.settings import Range
from training.runs.command_line import run_command

HOST = "127.0.0.1"
"""Reachable from this machine only."""
port_number = Range("in [0, 65535]", lambda port: 0 <= port < 2**16)


@dataclass(frozen=True)
class BrowseCommand:
    """Serves a page that searches with images, to this machine only."""

    model: Annotated[Path, tyro.conf.Positional]
    """Exported retriever, or the run directory it was exported from."""
    data_dir: str | None = None
    """Folder, list or archive with the gallery's images, to show them; by
    default that of the run in `runs`."""
    port: Annotated[int, port_number] = 8616
    """Port of the page; 0 takes any that is free."""
    open: bool = False
    """Open the page in the browser."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("browse", __doc__, BrowseCommand, serve, arguments)


def serve(command: BrowseCommand) -> None:
    """Loads an export and serves its page until the process is stopped."""
    folder = exported_folder(command.model)
    with bound_socket(command.port) as listening:
        # Imported here: TensorFlow takes seconds, --help and errors need none.
        import uvicorn

        from training.browsing.export_search import ExportSearch
        from training.browsing.search_page import search_app

        address = f"http://{HOST}:{listening.getsockname()[1]}/"
        app = search_app(
            ExportSearch(folder, command.data_dir), (HOST, "localhost")
        )
        print(f"{folder}: {address} (stop with Ctrl+C)")
        print(
            "Next: open this address in a browser; to serve the export to "
            "programs: docs/guides/serve.md",
            flush=True,
        )
        if command.open:
            webbrowser.open(address)
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


def bound_socket(port: int) -> socket.socket:
    """Returns a socket that is reachable from this machine only."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise OSError(
            f"`port` must be free. Received: port={port} ({error.strerror}). "
            "Choose another, or --port 0 for any."
        ) from error
    return listening


if __name__ == "__main__":
    main()
