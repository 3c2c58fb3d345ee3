"""Search an exported retriever: its files, its answers, its web page."""
