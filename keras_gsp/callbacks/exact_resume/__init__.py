"""Checkpoints from which a killed run resumes bit by bit."""
