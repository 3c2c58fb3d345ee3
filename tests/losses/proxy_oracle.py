"""Every proxy loss as a float64 loop from its equation, in one table."""

from functools import partial

import numpy as np

import keras_gsp as gsp


def proxy_nca(labels, similarities, temperature=0.11):
    total = 0.0
    for label, row in zip(labels, similarities, strict=True):
        powers = np.exp(row / temperature)
        total -= np.log(powers[label].sum() / powers.sum())
    return total / len(labels)


def proxy_anchor(labels, similarities, margin=0.1, alpha=32.0):
    _, num_classes, per_class = similarities.shape
    attractions, repulsions = [], []
    for c in range(num_classes):
        for k in range(per_class):
            own = similarities[np.equal(labels, c), c, k]
            other = similarities[np.not_equal(labels, c), c, k]
            if own.size:
                powers = np.exp(-alpha * (own - margin))
                attractions.append(np.log(1.0 + powers.sum()))
            powers = np.exp(alpha * (other + margin))
            repulsions.append(np.log(1.0 + powers.sum()))
    return np.mean(attractions) + np.mean(repulsions)


def soft_triple(labels, similarities, scale=20.0, gamma=0.1, margin=0.01):
    total = 0.0
    for label, row in zip(labels, similarities, strict=True):
        relaxed = []
        for own in row:
            powers = np.exp(own / gamma)
            relaxed.append(np.sum(powers / powers.sum() * own))
        logits = scale * np.array(relaxed)
        logits[label] -= scale * margin
        powers = np.exp(logits)
        total -= np.log(powers[label] / powers.sum())
    return total / len(labels)


def center_regularizer(proxies, weight):
    num_classes, per_class, _ = proxies.shape
    centers = proxies / np.linalg.norm(proxies, axis=-1, keepdims=True)
    total = 0.0
    for own in centers:
        for t in range(per_class):
            for s in range(t):
                total += np.sqrt(2.0 - 2.0 * own[s] @ own[t])
    return weight * total / (num_classes * per_class * (per_class - 1))


def softmax_with(own_logit, labels, similarities, temperature):
    """Cross-entropy of the nearest proxies, the own logit changed."""
    total = 0.0
    for label, row in zip(labels, similarities, strict=True):
        logits = row.max(axis=1)
        logits[label] = own_logit(logits[label])
        powers = np.exp((logits - logits.max()) / temperature)
        total -= np.log(powers[label] / powers.sum())
    return total / len(labels)


def arcface(labels, similarities, margin=0.5, temperature=1 / 64):
    def turned(cosine):
        angle = np.arccos(np.clip(cosine, -1.0, 1.0))
        if angle <= np.pi - margin:
            return np.cos(angle + margin)
        return np.cos(angle) - margin * np.sin(margin)

    return softmax_with(turned, labels, similarities, temperature)


def cosface(labels, similarities, margin=0.35, temperature=1 / 64):
    return softmax_with(lambda s: s - margin, labels, similarities, temperature)


NUM_CLASSES = 5
# A row per loss: the class and its loop, whose default arguments are alike.
PROXY_LOSSES = {
    "proxy_nca": (gsp.losses.ProxyNCALoss, proxy_nca),
    "proxy_anchor": (gsp.losses.ProxyAnchorLoss, proxy_anchor),
    "soft_triple": (gsp.losses.SoftTripleLoss, soft_triple),
    "arcface": (gsp.losses.ArcFaceLoss, arcface),
    "cosface": (gsp.losses.CosFaceLoss, cosface),
    "normalized_softmax": (
        gsp.losses.NormalizedSoftmaxLoss,
        partial(cosface, margin=0.0, temperature=0.05),
    ),
}


def make(case, **arguments):
    """The loss of a row."""
    return PROXY_LOSSES[case][0](**arguments)


def oracle(case, labels, similarities, fixed=None):
    """The loop of a row; no loss has a part without a gradient."""
    return PROXY_LOSSES[case][1](labels, np.asarray(similarities, "float64"))


def batch(per_class=2, size=8):
    """Classes 0 to 3 in unequal numbers; class 4 only has proxies."""
    random = np.random.default_rng(0)
    similarities = random.uniform(-1, 1, (size, NUM_CLASSES, per_class))
    return np.arange(size) % 7 % 4, similarities
