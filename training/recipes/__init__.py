"""Named training recipes: data, not scripts."""
