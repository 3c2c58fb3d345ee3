"""Every pair loss as a float64 loop written from its equation, in one table."""

import numpy as np

import keras_gsp as gsp


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
        *,
        normalization="l2",
    ):
        self.is_batch = references is None
        if self.is_batch:
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


def triplet(pairs, margin=0.05):
    hinges = []
    for i in range(len(pairs)):
        for j in pairs.positives(i):
            for k in pairs.negatives(i):
                gap = pairs.distance(i, j) - pairs.distance(i, k)
                hinges.append(max(gap + margin, 0.0))
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


def supervised_contrastive(pairs, temperature=0.1):
    terms = []
    for i in range(len(pairs)):
        positives = pairs.positives(i)
        everyone = positives + pairs.negatives(i)
        total = sum(np.exp(pairs.cosine(i, j) / temperature) for j in everyone)
        logs = [
            np.log(np.exp(pairs.cosine(i, j) / temperature) / total)
            for j in positives
        ]
        if logs:
            terms.append(-sum(logs) / len(logs))
    return sum(terms) / max(len(terms), 1)


def ntxent(pairs, temperature=0.1):
    terms = []
    for i in range(len(pairs)):
        rivals = sum(
            np.exp(pairs.cosine(i, j) / temperature) for j in pairs.negatives(i)
        )
        for j in pairs.positives(i):
            own = np.exp(pairs.cosine(i, j) / temperature)
            terms.append(-np.log(own / (own + rivals)))
    return sum(terms) / max(len(terms), 1)


def circle(pairs, margin=0.4, temperature=1 / 80, fixed=None):
    """`fixed` are the cosines that the weights are taken from."""
    terms = []
    for i in range(len(pairs)):
        pulls, pushes = 0.0, 0.0
        for j in pairs.positives(i):
            weight = max(1.0 + margin - (fixed or pairs).cosine(i, j), 0.0)
            gap = pairs.cosine(i, j) - 1.0 + margin
            pulls += np.exp(-weight * gap / temperature)
        for j in pairs.negatives(i):
            weight = max((fixed or pairs).cosine(i, j) + margin, 0.0)
            gap = pairs.cosine(i, j) - margin
            pushes += np.exp(weight * gap / temperature)
        if pulls and pushes:
            terms.append(np.log1p(pulls * pushes))
    return sum(terms) / max(len(terms), 1)


def margin(pairs, margin=0.2, beta=1.2):
    hinges = []
    for i in range(len(pairs)):
        for j in pairs.positives(i):
            for k in pairs.negatives(i):
                hinges.append(pairs.distance(i, j) - beta + margin)
                hinges.append(beta - pairs.distance(i, k) + margin)
    return mean_of_active(hinges)


def sigmoid(number):
    return 1.0 / (1.0 + np.exp(-number))


def soft_rank(items, own, temperature):
    """The rank of entry `own` of a list of similarities."""
    return 1.0 + sum(
        sigmoid((s - items[own]) / temperature)
        for j, s in enumerate(items)
        if j != own
    )


def lists(pairs, counts_query):
    """Each anchor's similarities, positives first, and how many they are."""
    for i in range(len(pairs)):
        positives = [pairs.cosine(i, j) for j in pairs.positives(i)]
        negatives = [pairs.cosine(i, j) for j in pairs.negatives(i)]
        if not positives:
            continue
        if counts_query:
            positives.append(pairs.anchors[i] @ pairs.anchors[i])
        yield positives + negatives, len(positives)


def smooth_ap(pairs, temperature=0.01):
    terms = []
    for items, count in lists(pairs, True):
        precisions = [
            soft_rank(items[:count], p, temperature)
            / soft_rank(items, p, temperature)
            for p in range(count)
        ]
        terms.append(1.0 - sum(precisions) / count)
    return sum(terms) / max(len(terms), 1)


def recall_at_k(pairs, k=(1, 2, 4, 8, 16), temperature=0.01):
    terms = []
    for items, count in lists(pairs, False):
        ranks = [soft_rank(items, p, temperature) for p in range(count)]
        recalls = [
            min(depth, sum(sigmoid(depth - rank) for rank in ranks))
            / min(depth, count)
            for depth in k
        ]
        terms.append(1.0 - sum(recalls) / len(k))
    return sum(terms) / max(len(terms), 1)


# A row per loss: the class, its loop and arguments of both. The margins leave
# active and inactive pairs in the data of the tests.
PAIR_LOSSES = {
    "contrastive": (
        gsp.losses.ContrastiveLoss,
        contrastive,
        {"positive_margin": 0.2, "negative_margin": 1.3},
    ),
    "cosine_contrastive": (
        gsp.losses.CosineContrastiveLoss,
        cosine_contrastive,
        {"margin": 0.1},
    ),
    "triplet": (gsp.losses.TripletLoss, triplet, {"margin": 0.1}),
    "multi_similarity": (
        gsp.losses.MultiSimilarityLoss,
        multi_similarity,
        {"alpha": 3.0, "beta": 20.0, "base": 0.3},
    ),
    "multi_similarity_mined": (
        gsp.losses.MultiSimilarityLoss,
        multi_similarity,
        {"mining_margin": 0.1},
    ),
    "supervised_contrastive": (
        gsp.losses.SupConLoss,
        supervised_contrastive,
        {"temperature": 0.3},
    ),
    "ntxent": (gsp.losses.NTXentLoss, ntxent, {"temperature": 0.3}),
    "circle": (
        gsp.losses.CircleLoss,
        circle,
        {"margin": 0.3, "temperature": 1 / 8},
    ),
    "margin": (gsp.losses.MarginLoss, margin, {"margin": 0.1, "beta": 1.1}),
    "smooth_ap": (gsp.losses.SmoothAPLoss, smooth_ap, {"temperature": 0.2}),
    "recall_at_k": (
        gsp.losses.RecallAtKLoss,
        recall_at_k,
        {"temperature": 0.2, "k": (1, 3)},
    ),
}


def make(case, **arguments):
    """The loss of a row, with other arguments if given."""
    loss, _, row = PAIR_LOSSES[case]
    return loss(**{**row, **arguments})


def oracle(case, *given, fixed=None, normalization="l2"):
    """The loop of a row; at `fixed` inputs the gradient is taken."""
    _, loop, arguments = PAIR_LOSSES[case]
    if case == "circle":  # Its weights have no gradient.
        arguments = {**arguments, "fixed": fixed and Pairs(*fixed)}
    return loop(Pairs(*given, normalization=normalization), **arguments)


def batch(size=10, classes=3, seed=0):
    """Labels of unequal counts, one class alone, embeddings of any length."""
    random = np.random.default_rng(seed)
    labels = np.append(np.arange(size - 1) % classes, classes)
    centers = random.normal(size=(classes + 1, 4))
    return labels, centers[labels] + 0.7 * random.normal(size=(size, 4))


def references(size=7, seed=1):
    """Labels and embeddings to compare with, and pairs to leave out."""
    labels, embeddings = batch(size, seed=seed)
    excluded = np.random.default_rng(seed).random((10, size)) < 0.3
    return labels, embeddings, excluded
