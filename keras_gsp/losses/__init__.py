"""Losses on pairs and proxies, and the regularisers."""
