"""The pair losses again, as plain float64 loops from their equations."""

import numpy as np


def normalized(vectors, normalization):
    vectors = np.asarray(vectors, dtype="float64")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if normalization == "l2":
        return vectors / np.where(norms == 0.0, 1.0, norms)
    if normalization == "ball":
        return vectors / np.maximum(norms, 1.0)
    return vectors


class Pairs:
    """Everything the loops ask: distances, cosines, positives, negatives."""

    def __init__(
        self,
        labels,
        embeddings,
        reference_labels=None,
        references=None,
        excluded=None,
        normalization="l2",
    ):
        if references is None:
            reference_labels, references = labels, embeddings
            excluded = np.eye(len(labels), dtype=bool)
        self.anchors = normalized(embeddings, normalization)
        self.references = normalized(references, normalization)
        self.labels = np.ravel(labels)
        self.reference_labels = np.ravel(reference_labels)
        shape = len(self.anchors), len(self.references)
        self.excluded = np.zeros(shape, bool) if excluded is None else excluded

    def __len__(self):
        return len(self.anchors)

    def distance(self, i, j):
        return np.linalg.norm(self.anchors[i] - self.references[j])

    def cosine(self, i, j):
        return self.anchors[i] @ self.references[j]

    def positives(self, i):
        return [j for j in self._kept(i) if self._is_same(i, j)]

    def negatives(self, i):
        return [j for j in self._kept(i) if not self._is_same(i, j)]

    def _kept(self, i):
        return [
            j for j in range(len(self.references)) if not self.excluded[i, j]
        ]

    def _is_same(self, i, j):
        return self.labels[i] == self.reference_labels[j]


def mean_of_active(hinges):
    active = [hinge for hinge in hinges if hinge > 0.0]
    return sum(active) / max(len(active), 1)


def contrastive(pairs, positive_margin=0.0, negative_margin=0.5):
    too_far, too_near = [], []
    for i in range(len(pairs)):
        for j in pairs.positives(i):
            too_far.append(pairs.distance(i, j) - positive_margin)
        for j in pairs.negatives(i):
            too_near.append(negative_margin - pairs.distance(i, j))
    return mean_of_active(too_far) + mean_of_active(too_near)


def cosine_contrastive(pairs, margin=0.5):
    total = 0.0
    for i in range(len(pairs)):
        for j in pairs.positives(i):
            total += max(1.0 - 1e-5 - pairs.cosine(i, j), 0.0)
        for j in pairs.negatives(i):
            total += max(pairs.cosine(i, j) - margin, 0.0)
    return total / len(pairs)


def triplet(pairs, margin=0.05, mean_over="active"):
    hinges = []
    for i in range(len(pairs)):
        for j in pairs.positives(i):
            for k in pairs.negatives(i):
                gap = pairs.distance(i, j) - pairs.distance(i, k)
                hinges.append(max(gap + margin, 0.0))
    if mean_over == "valid":
        return sum(hinges) / max(len(hinges), 1)
    return mean_of_active(hinges)


def multi_similarity(pairs, alpha=2.0, beta=40.0, base=0.5, mining_margin=None):
    total = 0.0
    for i in range(len(pairs)):
        positive = [pairs.cosine(i, j) for j in pairs.positives(i)]
        negative = [pairs.cosine(i, j) for j in pairs.negatives(i)]
        if mining_margin is not None:
            least = min(positive, default=np.inf)
            most = max(negative, default=-np.inf)
            positive = [s for s in positive if s < most + mining_margin]
            negative = [s for s in negative if s > least - mining_margin]
        attraction = sum(np.exp(-alpha * (s - base)) for s in positive)
        repulsion = sum(np.exp(beta * (s - base)) for s in negative)
        total += np.log1p(attraction) / alpha + np.log1p(repulsion) / beta
    return total / len(pairs)
