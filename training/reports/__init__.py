"""Reports on runs: one HTML page that opens from disk."""
