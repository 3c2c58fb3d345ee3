"""Atomic writing of files and folders, and their checksums."""
