"""The model that trains an encoder, with all that only training needs."""

from typing import Any

import keras
from keras import ops

from keras_gsp.embeddings.encoding import embedding_of
from keras_gsp.losses.metric_loss import References, StepParts
from keras_gsp.models.anchors import AnchoredWeights
from keras_gsp.models.encoder import histogram_of, pooled_of
from keras_gsp.models.problem_progress import ProblemProgress
from keras_gsp.models.replicas import gather_replicas, share_of_replica
from keras_gsp.ops.halves import class_disjoint_halves
from keras_gsp.ops.labels import check_same_length

# Parts that a loss or regulariser may need, and what to give for them.
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
)


@keras.saving.register_keras_serializable(package="keras_gsp")
class MetricLearner(keras.Model):
    r"""Trains an encoder with any pair or proxy loss of this package.

    Holds what training needs and serving does not: proxies, class embeddings,
    the memory of past batches, the regulariser, the anchors of chance
    constrained programming. `compile` and `fit` work as for any Keras model;
    `learner.encoder` is what is exported.

    The loss of a step is

    .. math:: (1 - w) L_\text{metric} + w L_\text{regulariser}
        + \tfrac{\lambda}{2} |\theta - \theta^*|^2

    plus the layers' own regularisation losses. The metric part is

    - a proxy loss: between the batch and the `proxies`;
    - a pair loss with `proxies`, with `memory`, or with both: between the
      batch and each of these, added up (the batch stands in for one that
      warms up), plus `in_batch_weight` times the loss within the batch;
    - a pair loss alone: within the batch;
    - any other loss: what its `training_loss` says, see `MetricLoss`. The
      learner asks a loss and a regulariser what they need and looks at no
      types.

    The last term pulls the encoder's weights towards the anchors; it is zero
    until `start_problem` sets anchors. Its gradient is the anchor pull
    :math:`+\lambda (\theta - \theta^*)` of Algorithm 1 (the printed sign is
    wrong). It enters through the loss on every backend, so that loss scaling
    and replicas treat it like any other gradient.

    Outside training a pair loss is taken within the batch, so that it means
    something for unseen classes too; regulariser and anchors do not count.
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
        anchor_weight: lambda, at least 0. Default 0, no anchors; 2e-4 in the
            papers.
        class_embeddings: `ClassEmbeddings`, needed by `ZeroShotLoss`.
        in_batch_weight: weight of the loss within the batch beside proxies or
            memory, at least 0. Default `None`: 1 with a memory, 0 with
            proxies alone (paper; 0.1 in the reference code). With neither,
            the loss within the batch is the whole loss, and any other weight
            than 1 is refused.
        anchor_decay: factor on lambda from problem to problem, in (0, 1].
            Default 1.
        seed: integer, seed of the split into class-disjoint halves.
        recent: optional `EmbeddingMemory` that is no part of the loss: the
            samples of `ChanceConstrainedProgramming(pool="recent")`.
        loss_layer: optional layer that holds a loss's own weights, for a
            loss that needs one.
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
        encoder,
        *,
        proxies=None,
        regularizer=None,
        regularizer_weight=0.1,
        memory=None,
        anchor_weight=0.0,
        class_embeddings=None,
        in_batch_weight=None,
        anchor_decay=1.0,
        seed=None,
        recent=None,
        loss_layer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
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
        self._check_weights()
        self._check_regularizer()
        self.halves_seed = keras.random.SeedGenerator(seed)
        self.anchored = self.progress = None
        if anchor_weight > 0.0:
            self.anchored = AnchoredWeights(
                anchor_weight, decay=anchor_decay, name="anchored"
            )
            if proxies is not None:
                self.progress = ProblemProgress(name="progress")
        if encoder.built:
            self.build(encoder.input_shape)

    def build(self, input_shape):
        """Builds the parts; done at construction for a built encoder."""
        if self.built:
            return
        if not self.encoder.built:
            self.encoder.build(input_shape)
        outputs = self.encoder.compute_output_shape(input_shape)
        embedding_shape = (None, embedding_of(outputs)[-1])
        for part in (self.proxies, self.memory, self.recent):
            if part is not None and not part.built:
                part.build(embedding_shape)
        for part in (self.class_embeddings, self.loss_layer):
            if part is not None and not part.built:
                part.build((None,))
        if self.anchored is not None and not self.anchored.built:
            self.anchored.build_for(self.encoder.trainable_variables)
        if self.progress is not None and not self.progress.built:
            self.progress.build_for(self.encoder, self.proxies.proxies)
        self.built = True

    def call(self, inputs, training=None):
        """Returns the encoder's output."""
        return self.encoder(inputs, training=training)

    def compile(self, optimizer="rmsprop", loss=None, **kwargs):
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
        if sample_weight is not None:
            raise ValueError(
                "MetricLearner takes no sample weights; draw the batches "
                "with `keras_gsp.data.class_balanced` instead. Received: "
                f"sample_weight of shape {tuple(sample_weight.shape)}."
            )
        parts = self._step_parts(y, y_pred, training)
        if not training:
            loss = self.loss.validation_loss(parts)
        else:
            loss = self.loss.training_loss(parts)
            if self.regularizer is not None:
                weight = self.regularizer_weight
                regularizer = self.regularizer.training_loss(parts)
                loss = (1.0 - weight) * loss + weight * regularizer
            if self.anchored is not None:
                loss += self.anchored.penalty(self.encoder.trainable_variables)
        for layer_loss in self.losses:
            loss += ops.sum(ops.cast(layer_loss, loss.dtype))
        return share_of_replica(loss)

    def compile_from_config(self, config):
        """Compiles a loaded model as the saved one was."""
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**config)
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def get_config(self):
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
    def from_config(cls, config, custom_objects=None):
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
        embeddings = embedding_of(outputs)
        check_same_length(labels, embeddings)
        labels, embeddings = (
            gather_replicas(labels),
            gather_replicas(embeddings),
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
            histograms = gather_replicas(histogram_of(outputs))
            pooled = pooled_of(outputs)
            pooled = None if pooled is None else gather_replicas(pooled)
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
        if self.in_batch_weight is not None:
            return self.in_batch_weight
        return 0.0 if self.memory is None else 1.0

    def _check_weights(self):
        _check_range("regularizer_weight", self.regularizer_weight, 0.0, 1.0)
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
