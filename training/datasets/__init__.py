"""Image sets with class-disjoint splits."""
