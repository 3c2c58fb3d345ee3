"""Every public op, layer and loss as a function of arrays: one table.

Losses and poolings are found automatically. Any other public name needs a line
here; `NOT_NUMERIC` are names that compute nothing.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

import keras_gsp as gsp
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.losses.metric_loss import StepParts
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.pairs import pair_weights
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.tensor import Tensor

SIZE, TOKENS, CLASSES = 4, 4, 5
NOT_NUMERIC = {
    "ExpectedPreprocessing",
    "MetricLoss",
    "PairLoss",
    "ListLoss",
    "ProxyLoss",
    "PairWeights",
}


@dataclass(frozen=True)
class Subject:
    """A function of labels and one array.

    Attributes:
        compute: (labels, array) to a tensor or a tuple of tensors.
        shapes: a tuple of the array's shape without the batch.
        is_by_row: whether a row of the results depends on the same row of the
            array only.
        is_smooth: whether there is a gradient.
        room: its part of the package.
        largest: norm up to which float32 holds the result and its gradient;
            1e15 for what squares or multiplies norms.
        may_be_empty: whether an empty batch can be tried in a graph.
        is_random: whether the result is drawn, differently on each backend.
    """

    compute: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((SIZE,),)
    is_by_row: bool = False
    is_smooth: bool = True
    room: str = "ops"
    largest: float = 1e30
    may_be_empty: bool = True
    is_random: bool = False


def fixed(*shape: int) -> np.ndarray:
    """The same noise in each process and dtype."""
    size = int(np.prod(shape))
    return np.sin(1.0 + 1.7 * np.arange(size)).reshape(shape)


def as_dtype_of(tensor: Tensor, *shape: int) -> Tensor:
    return ops.cast(ops.convert_to_tensor(fixed(*shape)), tensor.dtype)


def layer_call(layer: Any, input_shape: tuple, *, by_label: bool = False):
    """Calls a layer with the same weights in each process."""
    layers: dict[str, Any] = {}

    def made(policy):
        if policy not in layers:
            config = {**layer.get_config(), "dtype": policy}
            one = layers[policy] = type(layer).from_config(config)
            if by_label:
                one(np.zeros(1, "int64"))
            else:
                one.build((None, *input_shape))
            for weight in one.weights:
                noise = 0.5 * fixed(*weight.shape)
                # A variance is positive.
                is_variance = weight.name.endswith("variance")
                weight.assign(1.0 + noise if is_variance else noise)
        return layers[policy]

    # Here, because a graph creates no weights.
    made("float32")

    def compute(labels, inputs):
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        policy = dtype if dtype in ("float32", "float64") else f"mixed_{dtype}"
        return made(policy)(labels if by_label else inputs)

    return compute


def poolings() -> dict[str, Subject]:
    found = {}
    for name in gsp.layers.__all__:
        kind = getattr(gsp.layers, name)
        if not issubclass(kind, FeaturePooling):
            continue
        shape = (2, TOKENS // 2, SIZE)
        few = {
            "num_prototypes": 3,
            "num_clusters": 3,
            "num_heads": 2,
            "num_queries": 2,
            "num_references": 3,
            "hidden_size": 3,
            "kernel_size": 3,
            "reduction_ratio": 2,
            "num_supports": 3,
        }
        known = inspect.signature(kind).parameters
        layer = kind(**{k: v for k, v in few.items() if k in known})
        found[name] = Subject(
            layer_call(layer, shape),
            (shape,),
            is_by_row=True,
            room="layers",
            largest=1e15,
        )
    return found


def _memory(labels, embeddings):
    memory = gsp.layers.EmbeddingMemory(20)
    kept_labels, kept, excluded = memory(embeddings, labels, training=True)
    return gsp.losses.ContrastiveLoss().between(
        labels, embeddings, kept_labels, kept, excluded=excluded
    )


def _centers(labels, proxies):
    return gsp.losses.CenterRegularizer()(proxies)


_CLASSIFIER = layer_call(
    gsp.layers.IntraBatchClassifier(CLASSES, num_heads=2), (SIZE,)
)
LAYERS = {
    **poolings(),
    "IntraBatchClassifier": Subject(_CLASSIFIER, room="layers", largest=1e15),
    "BatchMessagePassing": Subject(
        layer_call(gsp.layers.BatchMessagePassing(num_heads=2), (SIZE,)),
        room="layers",
        largest=1e15,
    ),
    "ClassEmbeddings": Subject(
        layer_call(
            gsp.layers.ClassEmbeddings(CLASSES, SIZE), (), by_label=True
        ),
        is_smooth=False,
        room="layers",
    ),
    "ClassProxies": Subject(
        layer_call(
            gsp.layers.ClassProxies(CLASSES, proxies_per_class=2), (SIZE,)
        ),
        is_by_row=True,
        room="layers",
    ),
    # A new memory for each call, which a graph does not create.
    "EmbeddingMemory": Subject(_memory, room="layers", may_be_empty=False),
    "EmbeddingNormalization": Subject(
        layer_call(gsp.layers.EmbeddingNormalization("ball"), (SIZE,)),
        is_by_row=True,
        room="layers",
    ),
    "LearnedBoundary": Subject(
        layer_call(gsp.layers.LearnedBoundary(CLASSES), (), by_label=True),
        is_smooth=False,
        room="layers",
    ),
    "PatchTokens": Subject(
        layer_call(gsp.layers.PatchTokens(1), (TOKENS, SIZE)),
        ((TOKENS, SIZE),),
        is_by_row=True,
        room="layers",
    ),
    "PrototypeHistogram": Subject(
        layer_call(
            gsp.layers.PrototypeHistogram(3, affinity="l2"), (TOKENS, SIZE)
        ),
        ((TOKENS, SIZE),),
        is_by_row=True,
        room="layers",
    ),
    "TokenGrid": Subject(
        layer_call(gsp.layers.TokenGrid((2, TOKENS // 2)), (TOKENS, SIZE)),
        ((TOKENS, SIZE),),
        is_by_row=True,
        room="layers",
    ),
    "Whitening": Subject(
        layer_call(gsp.layers.Whitening(3), (SIZE,)),
        is_by_row=True,
        room="layers",
    ),
}


def _pair_loss(kind):
    def compute(labels, embeddings):
        return kind(reduction=None)(labels, embeddings)

    return compute


def _proxy_loss(kind):
    proxies = layer_call(
        gsp.layers.ClassProxies(CLASSES, proxies_per_class=2), (SIZE,)
    )

    def compute(labels, embeddings):
        return kind(reduction=None)(labels, proxies(labels, embeddings))

    return compute


def losses() -> dict[str, Subject]:
    found = {}
    for name in gsp.losses.__all__:
        kind = getattr(gsp.losses, name)
        if name in NOT_NUMERIC or not issubclass(kind, gsp.losses.MetricLoss):
            continue
        if issubclass(kind, gsp.losses.PairLoss):
            found[name] = Subject(_pair_loss(kind), room="losses")
        elif issubclass(kind, gsp.losses.ProxyLoss):
            found[name] = Subject(_proxy_loss(kind), room="losses")
    return found


def _halves(labels):
    return labels % 2 == 0


def _zero_shot(labels, histograms):
    return gsp.losses.ZeroShotLoss().compute(
        labels,
        ops.softmax(at_least_float32(histograms)),
        as_dtype_of(histograms, CLASSES, SIZE),
        _halves(labels),
    )


def _cross_batch(labels, embeddings):
    count = embeddings.shape[0]
    return gsp.losses.CrossBatchLoss(gsp.losses.ContrastiveLoss()).compute(
        labels,
        ops.softmax(as_dtype_of(embeddings, count, 3)),
        embeddings,
        _halves(labels),
    )


def _intra_batch(labels, embeddings):
    parts = StepParts(
        labels, embeddings, loss_layer=lambda x: _CLASSIFIER(labels, x)
    )
    return gsp.losses.IntraBatchLoss().training_loss(parts)


def _matryoshka(labels, embeddings):
    loss = gsp.losses.Matryoshka(gsp.losses.ContrastiveLoss(), sizes=(SIZE, 2))
    return loss(labels, embeddings)


def _distillation(labels, embeddings):
    teacher = as_dtype_of(embeddings, embeddings.shape[0], SIZE)
    return gsp.losses.DistillationLoss(relational=1.0)(teacher, embeddings)


LOSSES = {
    **losses(),
    "DistillationLoss": Subject(_distillation, room="losses", largest=1e15),
    "Matryoshka": Subject(_matryoshka, room="losses"),
    "CenterRegularizer": Subject(
        _centers, ((2, SIZE),), room="losses", may_be_empty=False
    ),
    "IntraBatchLoss": Subject(_intra_batch, room="losses", largest=1e15),
    "CrossBatchLoss": Subject(_cross_batch, room="losses"),
    "ZeroShotLoss": Subject(_zero_shot, room="losses"),
}


def _miner(mine):
    def compute(labels, embeddings):
        unit = unit_sphere(embeddings)
        weights = pair_weights(ops.convert_to_tensor(labels), labels)
        weights = weights.without(np.eye(len(labels), dtype=bool))
        return tuple(mine(unit, unit, weights.cast(unit.dtype), 0))

    return compute


def _recursive(labels, histograms):
    count = histograms.shape[0]
    return gsp.ops.recursive_prototypes(
        ops.softmax(at_least_float32(histograms)),
        as_dtype_of(histograms, count, 2),
        ridge=0.05,
        memory=0.9,
    )


def _to_prototypes(function, *shape, **options):
    return lambda labels, vectors: function(
        vectors, as_dtype_of(vectors, *shape), **options
    )


FEATURES = (TOKENS, SIZE)
OPS = {
    **{
        name: Subject(
            _miner(getattr(gsp.ops, name)),
            is_smooth=False,
            is_random=name == "distance_weighted_pairs",
        )
        for name in gsp.ops.__all__
        if name.endswith("_pairs")
    },
    "class_disjoint_halves": Subject(
        lambda labels, vectors: ops.cast(
            gsp.ops.class_disjoint_halves(labels, 0), "float32"
        ),
        is_smooth=False,
        is_random=True,
    ),
    "covering_radius": Subject(
        lambda labels, pool: gsp.ops.covering_radius(
            pool, as_dtype_of(pool, pool.shape[0], 1, SIZE)
        ),
        (FEATURES,),
        is_by_row=True,
        largest=1e15,
    ),
    "greedy_k_center": Subject(
        lambda labels, pool: ops.cast(
            gsp.ops.greedy_k_center(
                pool, as_dtype_of(pool, pool.shape[0], 1, SIZE), 2
            ),
            "float32",
        ),
        (FEATURES,),
        is_by_row=True,
        is_smooth=False,
        largest=1e15,
    ),
    "pairwise_distances": Subject(
        _to_prototypes(gsp.ops.pairwise_distances, 3, SIZE),
        is_by_row=True,
        largest=1e15,
    ),
    "partial_transport": Subject(
        lambda labels, costs: gsp.ops.partial_transport(
            costs, transport_ratio=0.3, inverse_temperature=5.0
        ),
        ((3, TOKENS),),
        is_by_row=True,
    ),
    "recursive_prototypes": Subject(_recursive),
    "sinkhorn_plan": Subject(
        lambda labels, scores: gsp.ops.sinkhorn_plan(
            at_least_float32(scores),
            np.full(3, -np.log(3)),
            np.full(SIZE, -np.log(SIZE)),
            num_iterations=3,
        ),
        ((3, SIZE),),
        is_by_row=True,
    ),
}
SUBJECTS = {**OPS, **LAYERS, **LOSSES}
