"""Contenders that are processes of their own run in this one: seconds less."""

import contextlib
import io
import runpy
import subprocess
import sys

import pytest


@pytest.fixture
def in_this_process(monkeypatch):
    """`subprocess.run` of a Python script runs it here."""

    def run(command, **_):
        _, script, *arguments = command
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            runpy.run_path(script, run_name="__main__")
        return subprocess.CompletedProcess(command, 0, printed.getvalue(), "")

    monkeypatch.setattr(subprocess, "run", run)
