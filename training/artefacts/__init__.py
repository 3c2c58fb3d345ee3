"""What exports carry beside the graph."""
