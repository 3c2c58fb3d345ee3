"""Checkpoints from which a killed run goes on bit by bit."""
