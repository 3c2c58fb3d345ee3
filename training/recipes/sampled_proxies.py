"""Proxies that start from samples, beside a pair loss."""

from typing import Any

# The same with and without alternation: as many and from as many samples as
# the papers take for many small classes, as fast as the network, beside the
# loss within the batch. So they are ahead of pairs alone with each loss of the
# study `emoji-frozen`.
SAMPLED: dict[str, Any] = {
    "proxies_per_class": 4,
    "ccp_pool_size": 7,
    # Evaluations; 100 steps of the studies, 75 in the papers.
    "ccp_patience": 2,
    "in_batch_weight": 1.0,
    "proxy_learning_rate_multiplier": 1.0,
}
