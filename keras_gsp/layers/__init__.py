"""Keras layers: poolings, proxies, class embeddings, memory."""
