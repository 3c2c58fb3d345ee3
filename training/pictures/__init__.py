"""Style of pictures, and pooling weights to draw."""
