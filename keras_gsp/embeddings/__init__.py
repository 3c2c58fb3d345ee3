"""Labeled batches and embeddings: what data, scores, indexes share."""
