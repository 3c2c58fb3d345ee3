"""The model that trains an encoder, with all that only training needs."""

from dataclasses import dataclass
from typing import Any, Self

import keras
import numpy as np
from keras import ops, tree

from keras_gsp.embeddings.labeled_batches import embedding_of
from keras_gsp.embeddings.processes import as_numpy
from keras_gsp.losses.metric_loss import References, StepParts
from keras_gsp.models.chunks import (
    ChunksOnTensorFlow,
    encode_chunks_on_jax,
)
from keras_gsp.models.encoder import histogram_of, pooled_of
from keras_gsp.models.problems import AnchoredWeights, ProblemProgress
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.halves import class_disjoint_halves
from keras_gsp.ops.labels import check_same_length
from keras_gsp.ops.tensor import Tensor

# Parts that a loss or regularizer may need, and what to give for them.
_PARTS = {
    "proxies": "ClassProxies(num_classes)",
    "class_embeddings": "ClassEmbeddings(num_classes, embedding_size)",
    "memory": "EmbeddingMemory(capacity)",
    "loss_layer": "the layer that holds the loss's own weights",
}
_SAVED_PARTS = ("encoder", "regularizer", "recent", *_PARTS)
_NUMBERS = (
    "regularizer_weight",
    "anchor_weight",
    "in_batch_weight",
    "anchor_decay",
    "seed",
    "batch_chunks",
    "log_regularizer_share",
)
_ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
_ON_JAX = keras.backend.backend() == "jax"


@dataclass(frozen=True)
class _StepLoss:
    """The loss of a step, before the anchors, in the shares that add up."""

    metric: Any
    regularizer: Any
    layers: Any

    @property
    def total(self):
        return self.metric + self.regularizer + self.layers


@keras.saving.register_keras_serializable(package="keras_gsp")
class MetricLearner(keras.Model):
    r"""Trains an encoder with any pair or proxy loss of this package.

    Holds what training needs and serving does not: proxies, class embeddings,
    the memory of past batches, the regularizer, the anchors of chance
    constrained programming. `compile` and `fit` work as for any Keras model;
    `learner.encoder` is what is exported.

    The loss of a step is

    .. math:: (1 - w) L_\text{metric} + w L_\text{regularizer}
        + \tfrac{\lambda}{2} |\theta - \theta^*|^2

    plus the layers' own regularization losses. The metric part is

    - a proxy loss: between the batch and the `proxies`;
    - a pair loss with `proxies`, with `memory`, or with both: between the
      batch and each of these, added up (the batch stands in for one that
      warms up), plus `in_batch_weight` times the loss within the batch;
    - a pair loss alone: within the batch;
    - any other loss: what its `training_loss` says, see `MetricLoss`. The
      learner asks a loss and a regularizer what they need and looks at no
      types.

    The last term pulls the encoder's weights towards the anchors; it is zero
    until `start_problem` sets anchors. Its gradient is the anchor pull
    :math:`+\lambda (\theta - \theta^*)` of Algorithm 1 (the printed sign is
    wrong). On TensorFlow `train_step` adds it to the gradients of the other
    terms; on JAX it enters through the loss. The updates are the same, and
    the loss that is reported has the term on both.

    Labels are what the loss takes. Those of a pair loss may be a matrix that
    says which pairs are positive, or several classes a sample (beside
    `proxies` too); memory and regularizers need one class a sample.

    Outside training a pair loss is taken within the batch, so that it means
    something for unseen classes too; regularizer and anchors do not count.
    Under `tf.distribute` the loss sees the pairs of the global batch.

    Args:
        encoder: model from images to embeddings, or to a dictionary with
            `"embedding"` and `"histogram"`; see `build_encoder`. Where there
            is `"pooled"`, `CrossBatchLoss` takes it.
        proxies: optional `ClassProxies`; needed by proxy losses.
        regularizer: optional `ZeroShotLoss` or `CrossBatchLoss`; both need an
            encoder that returns histograms.
        regularizer_weight: w, in [0, 1]. Default 0.1, the paper's for the
            zero-shot loss (0.01 for the cross-batch loss).
        memory: optional `EmbeddingMemory`, for pair losses. The reference
            code adds the loss against the memory to the loss within the
            batch; so does this class, see `in_batch_weight`.
        anchor_weight: lambda, at least 0; 2e-4 in the papers. With 0 the
            anchors are kept and do not pull: proxies alternate, and each
            problem begins where the last one ended, free from there (the
            papers' ablation). Default `None`: no anchors, no alternation.
        class_embeddings: `ClassEmbeddings`, needed by `ZeroShotLoss`.
        in_batch_weight: weight of the loss within the batch beside proxies or
            memory, at least 0. Default `None`: 1. That is the reference
            code's beside a memory; beside the proxies of a pair loss the
            paper has 0 and its code 0.1, with which alternating proxies are
            behind pairs alone, or level (study `emoji-proxies`). With neither
            proxies nor memory the loss within the batch is the whole loss,
            and any other weight than 1 is refused.
        anchor_decay: factor on lambda from problem to problem, in (0, 1].
            Default 1.
        seed: integer, seed of the split into class-disjoint halves.
        recent: optional `EmbeddingMemory` that is no part of the loss: the
            samples of `ChanceConstrainedProgramming(pool="recent")`.
        loss_layer: optional layer that holds a loss's own weights, for a
            loss that needs one.
        batch_chunks: n, at least 1, divides the batch. Above 1 a step takes
            the gradient of the whole batch with the memory of one n-th of
            it, for a second forward pass: the batch is embedded in n chunks
            that keep no activations, and again to take the gradient of the
            embeddings to the weights. Default 1. The loss sees the whole
            batch as ever, batch normalization one chunk at a time: its
            statistics are those of batch / n images (samples c, c + n, ...),
            and its moving averages take n steps. Where it is frozen, or
            there is none, the gradient is that of the plain step to
            rounding. Layers that add a loss in their call are refused.
        log_regularizer_share: whether training logs `regularizer_share`, the
            mean over steps of `|r| / (|m| + |r|)`, with m and r the gradients
            of `(1 - w) L_metric` and `w L_regularizer` with respect to the
            encoder's layer `"projection"` (all its weights where there is no
            such layer). Near 0 the regularizer does nothing. Costs two
            backward passes down to that layer; on JAX XLA has to merge the
            forward passes. Default `False`. Evaluation logs it as 0.
        **kwargs: `name` and other arguments of a Keras model.

    Call arguments:
        inputs: a batch of images.

    Returns:
        The encoder's output.

    Raises:
        ValueError: parts that do not fit each other, a weight outside its
            range.
        TypeError: at `compile`, a loss that is none of this package's kind.

    Example:

    ```python
    encoder = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(4)]
    )
    learner = gsp.models.MetricLearner(encoder)
    learner.compile("adam", loss=gsp.losses.ContrastiveLoss())
    images = np.random.default_rng(0).normal(size=(8, 8))
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    learner.fit(images, labels, verbose=0)
    ```

    Reference:
        Deep metric learning with alternating sets of alternating proxies,
        Algorithm 1; Generalized Sum Pooling for Metric Learning, Algorithm 4;
        Generalizable embeddings with cross-batch metric learning, (2.10).
    """

    def __init__(
        self,
        encoder: keras.Model,
        *,
        proxies: Tensor | None = None,
        regularizer: Any = None,
        regularizer_weight: float = 0.1,
        memory: Any = None,
        anchor_weight: float | None = None,
        class_embeddings: Tensor | None = None,
        in_batch_weight: Any = None,
        anchor_decay: float = 1.0,
        seed: int | None = None,
        recent: Any = None,
        loss_layer: Any = None,
        batch_chunks: int = 1,
        log_regularizer_share: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(batch_chunks=batch_chunks)
        self.encoder = encoder
        self.proxies = proxies
        self.regularizer = regularizer
        self.regularizer_weight = regularizer_weight
        self.memory = memory
        self.anchor_weight = anchor_weight
        self.class_embeddings = class_embeddings
        self.in_batch_weight = in_batch_weight
        self.anchor_decay = anchor_decay
        self.seed = seed
        self.recent = recent
        self.loss_layer = loss_layer
        self.batch_chunks = batch_chunks
        self.log_regularizer_share = log_regularizer_share
        self._check_weights()
        self._check_regularizer()
        self._share: Any = None
        if log_regularizer_share:
            self._share = keras.metrics.Mean(name="regularizer_share")
        self.halves_seed = keras.random.SeedGenerator(seed)
        self.anchored = self.progress = None
        if anchor_weight is not None:
            self.anchored = AnchoredWeights(
                anchor_weight, decay=anchor_decay, name="anchored"
            )
            if proxies is not None:
                self.progress = ProblemProgress(name="progress")
        if encoder.built:
            self.build(encoder.input_shape)

    def build(self, input_shape: tuple) -> None:
        """Builds the parts; done at construction for a built encoder."""
        if getattr(self, "built", False):
            return
        if not self.encoder.built:
            self.encoder.build(input_shape)
        outputs = self.encoder.compute_output_shape(input_shape)
        embedding_shape = (None, embedding_of(outputs)[-1])
        for part in (
            self.proxies,
            self.memory,
            self.recent,
            self.loss_layer,
        ):
            if part is not None and not part.built:
                part.build(embedding_shape)
        classes = self.class_embeddings
        if classes is not None and not classes.built:
            classes.build((None,))
        if self.anchored is not None and not self.anchored.built:
            self.anchored.build_for(self.encoder.trainable_variables)
        if self.batch_chunks > 1:
            _refuse_activity_losses(self.encoder, self.batch_chunks)
        progress, proxies = self.progress, self.proxies
        if progress is not None and proxies is not None:
            if not progress.built:
                progress.build_for(self.encoder, proxies.proxies)
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = None) -> Any:
        """Returns the encoder's output."""
        if _ON_JAX and training and self.batch_chunks > 1:
            return encode_chunks_on_jax(self.encoder, inputs, self.batch_chunks)
        return self.encoder(inputs, training=training)

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any
    ) -> None:
        """Configures training, as `keras.Model.compile`.

        Args:
            optimizer: as in Keras.
            loss: a loss of `keras_gsp.losses`, or another `MetricLoss`.
            **kwargs: the other arguments of `keras.Model.compile`.

        Raises:
            TypeError: any other loss.
            ValueError: a loss without a part it needs, or with one it cannot
                use.
        """
        self._check_loss(loss)
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Returns this replica's share of the loss; see the class.

        Raises:
            ValueError: sample weights, which only a pair loss in a plain
                `compile` takes; labels and embeddings of different length.
        """
        del x
        _refuse_sample_weight(sample_weight)
        loss = self._step_loss(y, y_pred, training).total
        if training and self.anchored is not None:
            loss += self.anchored.penalty(self.encoder.trainable_variables)
        return _share_of_replica(loss)

    if _ON_TENSORFLOW:

        def train_step(self, data: Any) -> Any:
            """Takes the inner step of Algorithm 1 on a batch.

            1. the gradients of the loss;
            2. plus `anchor_weight * (theta - theta*)` on the encoder's
               weights;
            3. the optimizer applies them.

            Both carry the loss scale and the replica's share, so that
            whatever the optimizer does with gradients (unscale, add up over
            replicas, accumulate, clip) it does with their sum.

            Args:
                data: (images, labels).

            Returns:
                The logs of the step.
            """
            import tensorflow as tf

            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
            _refuse_sample_weight(sample_weight)
            chunks = outputs = None
            if self.batch_chunks > 1:
                chunks = ChunksOnTensorFlow(self.encoder, x, self.batch_chunks)
                outputs = chunks.outputs()  # Outside the tape: no gradient.
            weights = self.trainable_variables
            is_split = chunks is not None or self.log_regularizer_share
            with tf.GradientTape(persistent=is_split) as tape:
                if chunks is None:
                    outputs = self(x, training=True)
                tape.watch(outputs)
                parts = self._step_loss(y, outputs)
                loss = _share_of_replica(parts.total)
                loss = self.optimizer.scale_loss(loss)
            head = self._head() if self.log_regularizer_share else []
            gradients, *shares = _gradients(
                tape,
                [
                    (loss, weights),
                    (parts.metric, head),
                    (parts.regularizer, head),
                ],
                outputs,
                chunks,
                self.encoder.trainable_variables,
            )
            penalty = 0.0
            if self.anchored is not None:
                anchored = self.encoder.trainable_variables
                factor = self.optimizer.scale_loss(_share_of_replica(1.0))
                pull = self.anchored.pull(anchored, factor)
                gradients = _added(gradients, weights, pull, anchored)
                penalty = self.anchored.penalty(anchored)
            if weights:
                self.optimizer.apply_gradients(
                    zip(gradients, weights, strict=True)
                )
            self._loss_tracker.update_state(
                parts.total + penalty,
                sample_weight=tf.shape(tree.flatten(x)[0])[0],
            )
            if head:
                self._share.update_state(_share(*shares))
            return self.compute_metrics(x, y, outputs)

    if _ON_JAX:

        def train_step(  # type: ignore[misc]
            self, state: Any, data: Any
        ) -> Any:
            """Notes the regularizer's share, if asked, and takes the step.

            Args:
                state: trainable, non-trainable, optimizer's and metrics'
                    variables, as Keras passes them on JAX.
                data: (images, labels).

            Returns:
                The logs of the step and the next state.
            """
            if self.log_regularizer_share:
                state = (*state[:3], self._noted_share(state, data))
            return super().train_step(state, data)

        def _noted_share(self, state, data):
            """The metrics' variables after the share of this step."""
            import jax

            trainable, others, _, metrics = state
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            head = {id(variable) for variable in self._head()}
            places = [
                place
                for place, variable in enumerate(self.trainable_variables)
                if id(variable) in head
            ]

            def parts(values):
                changed = list(trainable)
                for place, value in zip(places, values, strict=True):
                    changed[place] = value
                outputs, after = self.stateless_call(
                    changed, others, x, training=True
                )
                variables = (
                    self.trainable_variables,
                    self.non_trainable_variables,
                )
                mapping = [
                    pair
                    for kind, found in zip(
                        variables, (changed, after), strict=True
                    )
                    for pair in zip(kind, found, strict=True)
                ]
                with keras.StatelessScope(state_mapping=mapping):
                    loss = self._step_loss(y, outputs)
                return loss.metric, loss.regularizer

            values = [trainable[place] for place in places]
            (metric, _), pull = jax.vjp(parts, values)
            one, zero = ops.ones_like(metric), ops.zeros_like(metric)
            share = _share(pull((one, zero))[0], pull((zero, one))[0])
            mapping = list(zip(self.metrics_variables, metrics, strict=True))
            with keras.StatelessScope(state_mapping=mapping) as scope:
                self._share.update_state(share)
            return [scope.get_current_value(v) for v in self.metrics_variables]

    def _head(self):
        """The weights by which the regularizer's share is measured."""
        layers = getattr(self.encoder, "layers", ())
        for layer in layers:
            if layer.name == "projection" and layer.trainable_variables:
                return layer.trainable_variables
        return self.encoder.trainable_variables

    def _step_loss(self, labels, outputs, training=True):
        """The loss of the whole batch, without the anchors."""
        parts = self._step_parts(labels, outputs, training)
        regularizer = 0.0
        if not training:
            metric = self.loss.validation_loss(parts)
        else:
            metric = self.loss.training_loss(parts)
            if self.regularizer is not None:
                weight = self.regularizer_weight
                metric = (1.0 - weight) * metric
                regularizer = weight * self.regularizer.training_loss(parts)
        layers = sum(
            ops.sum(ops.cast(loss, metric.dtype)) for loss in self.losses
        )
        return _StepLoss(metric, regularizer, layers)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as the saved one was."""
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**config)
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def get_weights(self) -> list[np.ndarray]:
        """Returns the weights, whole where processes hold their parts."""
        return [as_numpy(weight) for weight in self.weights]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, parts included."""
        parts = {
            name: None
            if getattr(self, name) is None
            else keras.saving.serialize_keras_object(getattr(self, name))
            for name in _SAVED_PARTS
        }
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {"name": self.name, **parts, **numbers}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        """Rebuilds a learner from `get_config`."""
        del custom_objects
        parts = {
            key: keras.saving.deserialize_keras_object(value)
            if isinstance(value, dict)
            else value
            for key, value in config.items()
        }
        return cls(**parts)

    def _step_parts(self, labels, outputs, training):
        """Everything of a step, gathered from the replicas."""
        labels = self.loss.checked_labels(labels)
        if training and len(labels.shape) > 1:
            self._check_matrix_is_enough(labels)
        embeddings = embedding_of(outputs)
        check_same_length(labels, embeddings)
        labels, embeddings = (
            _gather_replicas(labels),
            _gather_replicas(embeddings),
        )
        always = {
            "labels": labels,
            "embeddings": embeddings,
            "proxies": self.proxies,
            "class_embeddings": self.class_embeddings,
            "loss_layer": self.loss_layer,
        }
        if not training:
            return StepParts(**always)
        if self.recent is not None:
            self.recent(embeddings, labels, training=True)
        needs = getattr(self.regularizer, "needs", ()) + self.loss.needs
        histograms = pooled = first_half = None
        if "histograms" in needs:
            histograms = _gather_replicas(histogram_of(outputs))
            pooled = pooled_of(outputs)
            pooled = None if pooled is None else _gather_replicas(pooled)
        if "first_half" in needs:
            # The generator's state belongs to the learner's variables: a
            # resumed run splits as the uninterrupted one would have.
            first_half = class_disjoint_halves(labels, self.halves_seed)
        return StepParts(
            **always,
            histograms=histograms,
            pooled=pooled,
            first_half=first_half,
            references=tuple(self._references(labels, embeddings)),
            in_batch_weight=self._weight_within(),
        )

    def _check_matrix_is_enough(self, labels):
        """Parts that remember or split a batch by class need its classes."""
        for name in ("memory", "recent", "regularizer"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"`{name}` needs one class a sample, labels of shape "
                    "(batch,) or (batch, 1); a matrix of pairs or of several "
                    "classes goes without it. Received: labels of shape "
                    f"{tuple(labels.shape)} and {name}={getattr(self, name)!r}."
                )

    def _references(self, labels, embeddings):
        """What the batch is compared with; the memory takes it up first."""
        if self.proxies is not None:
            is_warm = None
            if self.progress is not None:
                is_warm = ops.equal(self.progress.is_warming_up, 0)
            yield References(
                self.proxies.proxy_labels,
                self.proxies.flat_proxies(),
                is_warm=is_warm,
            )
        if self.memory is not None:
            remembered, references, excluded = self.memory(
                embeddings, labels, training=True
            )
            warms_up = self.memory.warmup_steps > 0
            is_warm = self.memory.is_warm if warms_up else None
            yield References(remembered, references, excluded, is_warm)

    def _weight_within(self):
        return 1.0 if self.in_batch_weight is None else self.in_batch_weight

    def _check_weights(self):
        _check_range("regularizer_weight", self.regularizer_weight, 0.0, 1.0)
        if self.anchor_weight is not None:
            _check_range("anchor_weight", self.anchor_weight, 0.0, float("inf"))
        if not 0.0 < self.anchor_decay <= 1.0:
            raise ValueError(
                "`anchor_decay` must be in (0, 1]. "
                f"Received: anchor_decay={self.anchor_decay}."
            )
        weight = self.in_batch_weight
        if weight is None:
            return
        _check_range("in_batch_weight", weight, 0.0, float("inf"))
        if self.proxies is None and self.memory is None and weight != 1.0:
            raise ValueError(
                "`in_batch_weight` must be None, or 1, without `proxies` and "
                "`memory`: the loss within the batch is then the whole loss. "
                f"Received: in_batch_weight={weight}."
            )

    def _check_regularizer(self):
        if self.regularizer is None:
            if self.log_regularizer_share:
                raise ValueError(
                    "`log_regularizer_share` needs a regularizer. Received: "
                    "log_regularizer_share=True, regularizer=None."
                )
            return
        self._check_needs(self.regularizer)
        outputs = self.encoder.output if self.encoder.built else {}
        if "histograms" in self.regularizer.needs and not isinstance(
            outputs, dict
        ):
            raise ValueError(
                "A regularizer needs an encoder that returns a dictionary "
                'with "embedding" and "histogram". Received: an encoder with '
                "one output. Build it with "
                "`GeneralizedSumPooling(return_histogram=True)` or with "
                "`build_encoder(..., histogram=PrototypeHistogram())`."
            )

    def _check_loss(self, loss):
        if not hasattr(loss, "training_loss"):
            raise TypeError(
                "`loss` must be a pair loss or a proxy loss of "
                "`keras_gsp.losses`, or another `MetricLoss`. "
                f"Received: loss={loss!r}."
            )
        self._check_needs(loss)
        used = {*loss.needs, *loss.takes}
        used |= {*getattr(self.regularizer, "needs", ())}
        given = {
            "proxies": self.proxies is not None,
            "memory": self.memory is not None,
            "in_batch_weight": (self.in_batch_weight or 0.0) > 0.0,
        }
        for name, is_given in given.items():
            if is_given and name not in used:
                raise ValueError(
                    f"{type(loss).__name__} cannot use `{name}`; `memory` and "
                    "`in_batch_weight` need a pair loss, `proxies` a pair "
                    "loss or a proxy loss. Received: "
                    f"{name}={getattr(self, name)!r}."
                )

    def _check_needs(self, loss):
        """Raises unless every part is there that a loss needs."""
        for name, example in _PARTS.items():
            if name in loss.needs and getattr(self, name) is None:
                raise ValueError(
                    f"{type(loss).__name__} needs {name}: give MetricLearner "
                    f"`{name}={example}`. Received: {name}=None."
                )


def _check_range(name, value, low, high):
    if not low <= value <= high:
        raise ValueError(
            f"`{name}` must be in [{low:g}, {high:g}]. "
            f"Received: {name}={value}."
        )


def _refuse_sample_weight(sample_weight):
    if sample_weight is not None:
        raise ValueError(
            "MetricLearner takes no sample weights; draw the batches "
            "with `keras_gsp.data.class_balanced` instead. Received: "
            f"sample_weight of shape {tuple(sample_weight.shape)}."
        )


def _refuse_activity_losses(encoder, batch_chunks):
    """Such a loss would be that of the last chunk."""
    layers = [encoder]
    while layers:
        layer = layers.pop()
        if getattr(layer, "activity_regularizer", None) is not None:
            raise ValueError(
                "`batch_chunks` must be 1 with activity regularizers. "
                f"Received: batch_chunks={batch_chunks}, and one in the "
                f"layer {layer.name!r}."
            )
        layers += getattr(layer, "layers", [])


def _gradients(tape, targets, outputs, chunks, encoded):
    """Gradients of losses, through the whole batch or its chunks.

    Args:
        tape: persistent, watches outputs and variables.
        targets: (loss, variables) pairs.
        outputs: of the encoder.
        chunks: `ChunksOnTensorFlow`, or `None`.
        encoded: the encoder's trainable variables.
    """
    if chunks is None:
        return [
            tape.gradient(*target) if target[1] else [] for target in targets
        ]
    targets = [target for target in targets if target[1]]
    ours = {id(variable) for variable in encoded}
    inside = [[v for v in found if id(v) in ours] for _, found in targets]
    pulled = [
        tape.gradient(loss, outputs, unconnected_gradients="zero")
        for loss, _ in targets
    ]
    through = chunks.gradients(list(zip(pulled, inside, strict=True)))
    return [
        _added(tape.gradient(loss, found), found, gradients, variables)
        for (loss, found), gradients, variables in zip(
            targets, through, inside, strict=True
        )
    ]


def _added(gradients, variables, more, their_variables):
    """Adds gradients to those of the same variables; `None` is nothing."""
    more = {id(v): one for v, one in zip(their_variables, more, strict=True)}
    return [
        more.get(id(variable), gradient)
        if gradient is None or id(variable) not in more
        else ops.convert_to_tensor(gradient) + more[id(variable)]
        for variable, gradient in zip(variables, gradients, strict=True)
    ]


def _share(metric, regularizer):
    """`|r| / (|m| + |r|)` of two lists of gradients, 0 when both are 0."""
    metric, regularizer = _norm(metric), _norm(regularizer)
    both = metric + regularizer
    return regularizer / ops.where(both == 0.0, 1.0, both)


def _norm(gradients):
    squares = [
        ops.sum(ops.square(ops.cast(gradient, "float32")))
        for gradient in gradients
        if gradient is not None
    ]
    return ops.sqrt(sum(squares, ops.zeros(())))


def _gather_replicas(tensor):
    """Returns the tensor of every replica, joined along the first axis.

    A loss on pairs is a function of the whole batch: replicas that look at
    their own part minimise another objective. On JAX the global batch is what
    a program sees anyway, and nothing is done.

    Args:
        tensor: (batch of this replica, ...).

    Returns:
        (global batch, ...).
    """
    if keras.backend.backend() != "tensorflow":
        return tensor
    import tensorflow as tf

    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return tensor
    context = tf.distribute.get_replica_context()
    if context is None:
        # Keras traces the loss once outside the replicas, for its shape.
        return tensor
    # The identity turns a per-replica input into a tensor of this replica.
    return context.all_gather(tf.identity(tensor), axis=0)


def _share_of_replica(loss):
    """Divides a global loss by the replicas, whose gradients are summed."""
    if keras.backend.backend() != "tensorflow":
        return loss
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return loss if replicas == 1 else loss / replicas
