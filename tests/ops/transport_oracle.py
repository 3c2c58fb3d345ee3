"""The transport problem in NumPy and float64, with a solver of its own."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, softmax


def threshold(log_affinities, ratio):
    """Solves mean(sigmoid(b + t)) = ratio by bracketing, one row."""
    odds = np.log(ratio) - np.log1p(-ratio)

    def error(t):
        logits = log_affinities + t
        return (
            np.log(np.mean(expit(logits)))
            - np.log(np.mean(expit(-logits)))
            - odds
        )

    low = odds - log_affinities.max() - 1e-3
    high = odds - log_affinities.min() + 1e-3
    return brentq(error, low, high, xtol=1e-13, rtol=1e-15, maxiter=500)


def partial_transport(costs, ratio, eps):
    """Residual (n,) and plan (m, n) of costs (m, n)."""
    count = costs.shape[-1]
    assignment = softmax(-eps * costs, axis=0)
    if ratio == 1.0:
        return np.zeros(count), assignment / count
    logits = logsumexp(-eps * costs, axis=0)
    logits = logits + threshold(logits, ratio)
    return expit(-logits) / count, assignment * expit(logits) / count


def plan_gradient(costs, ratio, eps, upstream):
    """d sum(upstream * plan) / d costs, Proposition 4.2 as corrected."""
    residual, plan = partial_transport(costs, ratio, eps)
    count = costs.shape[-1]
    gate = count * residual
    assignment = softmax(-eps * costs, axis=0)
    mean_upstream = (assignment * upstream).sum(axis=0)
    slopes = gate * (1.0 - gate)
    center = (slopes * mean_upstream).sum() / max(slopes.sum(), 1e-300)
    inner = upstream - mean_upstream + gate * (mean_upstream - center)
    return -eps * plan * inner


def ratio_gradient(costs, ratio, eps, upstream):
    """d sum(upstream * plan) / d ratio."""
    residual, _ = partial_transport(costs, ratio, eps)
    gate = costs.shape[-1] * residual
    slopes = gate * (1.0 - gate)
    assignment = softmax(-eps * costs, axis=0)
    mean_upstream = (assignment * upstream).sum(axis=0)
    return (slopes * mean_upstream).sum() / slopes.sum()


def ball_costs(seed, num_prototypes, num_features, size=8):
    """Distances in the unit ball, some features in tight clusters."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(num_features, size))
    features[::2] = features[0] + 0.05 * features[::2]
    prototypes = generator.normal(size=(num_prototypes, size))
    for vectors in (features, prototypes):
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        vectors /= np.maximum(1.0, norms)
    return np.linalg.norm(prototypes[:, None] - features[None], axis=-1)
