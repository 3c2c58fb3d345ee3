"""The model that trains an encoder with any loss of this package."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from keras_gsp._checks import check_count, check_interval, check_same_size
from keras_gsp._compat import compile_by_xla, layers_at_any_depth
from keras_gsp._configured import Configured
from keras_gsp._encoding import embedding_of
from keras_gsp._labeled_batches import first_labels
from keras_gsp._labels import batch_labels, is_host, label_numbers
from keras_gsp._processes import as_numpy
from keras_gsp._tensor import Tensor
from keras_gsp.layers.class_proxies import ClassEmbeddings, ClassProxies
from keras_gsp.layers.embedding_memory import EmbeddingMemory
from keras_gsp.losses.metric_loss import References, Regularizer, StepParts
from keras_gsp.models.chunks import (
    ChunksOnTensorFlow,
    add_gradients,
    check_no_activity_losses,
    encode_chunks_on_jax,
)
from keras_gsp.models.lora import restart_factors
from keras_gsp.models.problems import AnchoredWeights, ProblemProgress
from keras_gsp.ops.halves import class_disjoint_halves
from keras_gsp.ops.labels import (
    class_indices,
    flat_labels,
    nan_without_row,
)

# Parts that a loss or regularizer may need, and what to give for them.
_PARTS = {
    "proxies": "ClassProxies(num_classes)",
    "class_embeddings": "ClassEmbeddings(num_classes, embedding_size)",
    "memory": "EmbeddingMemory(capacity)",
}
_ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
_ON_JAX = keras.backend.backend() == "jax"


class StepLoss(NamedTuple):
    """`(1 - w) L_metric`, `w L_regularizer`, the layers' regularization."""

    metric: Tensor
    regularizer: Tensor
    layers: Tensor

    @property
    def total(self) -> Tensor:
        """Their sum."""
        return self.metric + self.regularizer + self.layers


class MetricLearner(Configured, keras.Model):
    r"""Trains an encoder with any pair or proxy loss of this package.

    `learner.encoder` is the model to export. The loss of a step is

    .. math:: (1 - w) L_\text{metric} + w L_\text{regularizer}
        + \tfrac{\lambda}{2} |\theta - \theta^*|^2

    plus the layers' own regularization losses. The metric loss is

    - for a proxy loss: between the batch and the `proxies`;
    - for a pair loss: within the batch. With `proxies`, `memory`, or both:
      the sum of the losses between the batch and each of them, plus
      `in_batch_weight` times the loss within the batch. During the warm-up
      of references the loss within the batch replaces theirs;
    - for any other loss: its `training_loss`, see `MetricLoss`.

    The last term is zero until `ChanceConstrainedProgramming` sets anchors.
    Its gradient is the anchor pull :math:`+\lambda (\theta - \theta^*)` of
    Algorithm 1 (the printed sign is wrong).

    Outside training a pair loss is computed within the batch, so that unseen
    classes work. Under `tf.distribute` it sees the pairs of the global batch.

    Args:
        encoder: model from images to embeddings, or to a dictionary as of
            `build_encoder`.
        proxies: optional `ClassProxies`; proxy losses need them.
        regularizer: optional `ZeroShotLoss` or `CrossBatchLoss`; both need an
            encoder that returns histograms.
        regularizer_weight: w, in [0, 1]. The papers have 0.1 for the
            zero-shot loss, 0.01 for the cross-batch loss.
        memory: optional `EmbeddingMemory`, for pair losses.
        anchor_weight: lambda, at least 0; 2e-4 in the papers. With 0 proxies
            alternate without the pull. `None`: no anchors, no alternation.
        class_embeddings: `ClassEmbeddings`, needed by `ZeroShotLoss`.
        in_batch_weight: weight of the loss within the batch beside proxies or
            memory, at least 0. `None`: the reference code's, 0.1 beside
            sampled proxies (with anchors; the paper has 0), otherwise 1.
        seed: integer, seed of the split into class-disjoint halves.
        batch_chunks: n, at least 1, divides the batch. Above 1 a step takes
            the gradient of the whole batch, up to rounding, with the memory
            of one n-th of it and a second forward pass; batch normalization
            in training sees one chunk at a time. Layers with an activity
            regularizer are refused, and PyTorch.
        log_regularizer_share: whether training logs `regularizer_share`, the
            mean over steps of `|r| / (|m| + |r|)`, with m and r the gradients
            of `(1 - w) L_metric` and `w L_regularizer` with respect to the
            layer `"projection"`, or all weights. On TensorFlow alone.
        **kwargs: `name` and other arguments of a Keras model.

    Raises:
        ValueError: parts that do not fit each other or, at `compile`, the
            loss; a weight outside its range.
        TypeError: at `compile`, a loss that is no `MetricLoss`.

    Example:

    ```python
    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
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
        proxies: ClassProxies | None = None,
        regularizer: Any = None,
        regularizer_weight: float = 0.1,
        memory: EmbeddingMemory | None = None,
        anchor_weight: float | None = None,
        class_embeddings: ClassEmbeddings | None = None,
        in_batch_weight: float | None = None,
        seed: int | None = None,
        batch_chunks: int = 1,
        log_regularizer_share: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.encoder = encoder
        self.proxies = proxies
        self.regularizer = regularizer
        self.regularizer_weight = regularizer_weight
        self.memory = memory
        self.anchor_weight = anchor_weight
        self.class_embeddings = class_embeddings
        self.in_batch_weight = in_batch_weight
        self.seed = seed
        self.batch_chunks = batch_chunks
        self.log_regularizer_share = log_regularizer_share
        self._check_weights()
        self._check_regularizer()
        self.regularizer_share: Any = None
        if log_regularizer_share:
            self.regularizer_share = keras.metrics.Mean("regularizer_share")
        self.halves_seed = keras.random.SeedGenerator(seed)
        # The names whose codes are in the memory, `None`: numbers as given.
        self._names: list | None = None
        self.anchored = self.progress = None
        if anchor_weight is not None:
            self.anchored = AnchoredWeights(anchor_weight, name="anchored")
            if proxies is not None:
                self.progress = ProblemProgress(name="progress")
        if encoder.built:
            self.build(encoder.input_shape)

    def build(self, input_shape: tuple) -> None:
        if getattr(self, "built", False):
            return
        if not self.encoder.built:
            self.encoder.build(input_shape)
        outputs = self.encoder.compute_output_shape(input_shape)
        shape = (None, embedding_of(outputs)[-1])
        for part in (self.proxies, self.memory, self.progress):
            if part is not None and not part.built:
                part.build(shape)
        if self.anchored is not None and not self.anchored.built:
            self.anchored.build_for(self.encoder.trainable_variables)
        if self.batch_chunks > 1:
            check_no_activity_losses(self.encoder, self.batch_chunks)
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = None) -> Any:
        if _ON_JAX and training and self.batch_chunks > 1:
            return encode_chunks_on_jax(self.encoder, inputs, self.batch_chunks)
        return self.encoder(inputs, training=training)

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any
    ) -> None:
        """As `keras.Model.compile`, with a loss of `keras_gsp.losses`."""
        self._check_loss(loss)
        super().compile(optimizer=optimizer, loss=loss, **kwargs)
        if _ON_JAX and not self.run_eagerly and kwargs.get("jit_compile", True):
            # Of a `TwoLooks` too: a training has one size of images.
            compile_by_xla(self)

    def fit(
        self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Trains as `keras.Model.fit`; never shuffles a data set.

        Labels of arrays are integers, whole floats or strings; proxies and
        class embeddings need class numbers from 0. Those of a data set are
        integers; whole floats too, but on JAX.
        """
        # In a loaded learner, whose factors were merged when it was saved.
        restart_factors(self.encoder)
        y = self._numbers(x, y, is_training=True)
        data = kwargs.get("validation_data")
        if isinstance(data, tuple) and len(data) == 2:
            kwargs["validation_data"] = data[0], self._numbers(*data)
        elif data is not None:
            self._numbers(data, None)
        # Keras would warn that it ignores its own default.
        is_data_set = isinstance(x, keras.utils.PyDataset)
        if (is_data_set or hasattr(x, "element_spec")) and len(args) < 7:
            kwargs.setdefault("shuffle", False)
        return super().fit(x, y, *args, **kwargs)

    def evaluate(
        self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Evaluates as `keras.Model.evaluate`; labels are those of `fit`."""
        # `fit` has checked what it validates on, and calls this every epoch.
        if not kwargs.get("_use_cached_eval_dataset"):
            y = self._numbers(x, y)
        return super().evaluate(x, y, *args, **kwargs)

    def train_on_batch(
        self, x: Any, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Trains on one batch; labels are integers of 32 bits."""
        y = batch_labels(y)
        self._check_class_numbers(y)
        return super().train_on_batch(x, y, *args, **kwargs)

    def test_on_batch(
        self, x: Any, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Evaluates on one batch; labels are those of `train_on_batch`."""
        return super().test_on_batch(x, batch_labels(y), *args, **kwargs)

    if _ON_TENSORFLOW:
        train_function: Any

        def make_train_function(self, force: bool = False) -> None:
            """Makes the training step, which is traced once.

            It is traced twice where it creates the optimizer's variables.
            """
            if self.train_function is not None and not force:
                return
            super().make_train_function(force)
            step = self.train_function

            def built_step(iterator):
                # After the callbacks that freeze layers or set them free.
                variables = self.trainable_variables
                if variables and not self.optimizer.built:
                    if all(part.built for part in layers_at_any_depth(self)):
                        self.optimizer.build(variables)
                return step(iterator)

            self.train_function = built_step

        def train_step(self, data: Any) -> dict[str, Any]:
            """Takes the inner step of Algorithm 1 on (images, labels).

            Loss scale and the replica's share multiply the loss and the pull:
            the optimizer unscales, sums and clips the sum of their gradients.
            """
            import tensorflow as tf

            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
            _check_no_sample_weight(sample_weight)
            chunks = None
            if self.batch_chunks > 1:
                chunks = ChunksOnTensorFlow(self.encoder, x, self.batch_chunks)
            with tf.GradientTape(persistent=True) as tape:
                if chunks is None:
                    outputs = self(x, training=True)
                else:
                    outputs = chunks.outputs(tape)
                step = self.step_loss(y, outputs)
                loss = self.optimizer.scale_loss(_share_of_replica(step.total))
            weights = self.trainable_variables
            targets = [(loss, weights)]
            if self.log_regularizer_share:
                measured = _measured_weights(self.encoder)
                targets += [(step.metric, measured)]
                targets += [(step.regularizer, measured)]
            if chunks is None:
                gradients, *parts = [
                    tape.gradient(*target) for target in targets
                ]
            else:
                gradients, *parts = chunks.gradients(tape, outputs, targets)
            reported = step.total
            if self.anchored is not None:
                anchored = self.encoder.trainable_variables
                factor = self.optimizer.scale_loss(_share_of_replica(1.0))
                pull = self.anchored.pull(anchored, factor)
                gradients = add_gradients(gradients, weights, pull, anchored)
                reported += self.anchored.penalty(anchored)
            if weights:
                pairs = zip(gradients, weights, strict=True)
                self.optimizer.apply_gradients(pairs)
            size = tf.shape(tree.flatten(x)[0])[0]
            self._loss_tracker.update_state(reported, sample_weight=size)
            if parts:
                self.regularizer_share.update_state(_gradient_share(*parts))
            return self.compute_metrics(x, y, outputs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Returns this replica's share of the loss; see the class."""
        del x
        _check_no_sample_weight(sample_weight)
        loss = self.step_loss(y, y_pred, training).total
        if training and self.anchored is not None:
            loss += self.anchored.penalty(self.encoder.trainable_variables)
        return _share_of_replica(loss)

    def step_loss(
        self, labels: Tensor, outputs: Any, training: bool = True
    ) -> StepLoss:
        """Returns the loss of the global batch, without the anchor penalty."""
        parts = self._step_parts(labels, outputs, training)
        regularizer = 0.0
        if not training:
            metric = self.loss.validation_loss(parts)
        else:
            metric = self.loss.training_loss(parts)
            metric = self._checked_loss(metric, parts.labels)
            if self.regularizer is not None:
                weight = self.regularizer_weight
                metric = (1.0 - weight) * metric
                regularizer = weight * self.regularizer.training_loss(parts)
        layers = sum(
            ops.sum(ops.cast(loss, metric.dtype)) for loss in self.losses
        )
        return StepLoss(metric, regularizer, layers)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as the saved one was."""
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**config)
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def get_weights(self) -> list[np.ndarray]:
        """Returns the weights; sharded ones are gathered."""
        return [as_numpy(weight) for weight in self.weights]

    def _step_parts(self, labels, outputs, training):
        """Returns what a loss may use, gathered from the replicas."""
        labels = flat_labels(labels)
        embeddings = embedding_of(outputs)
        check_same_size(labels, embeddings)
        labels = _gather_replicas(labels)
        embeddings = _gather_replicas(embeddings)
        more: dict[str, Any] = {}
        if training:
            needs = getattr(self.regularizer, "needs", ()) + self.loss.needs
            if "histograms" in needs:
                more["histograms"] = _gather_replicas(outputs["histogram"])
                if "pooled" in outputs:
                    more["pooled"] = _gather_replicas(outputs["pooled"])
            if "first_half" in needs:
                # The generator's state is a variable of the learner: a resumed
                # run splits as an uninterrupted one.
                halves = class_disjoint_halves(labels, self.halves_seed)
                more["first_half"] = halves
            more["references"] = tuple(self._references(labels, embeddings))
            more["in_batch_weight"] = self.in_batch_weight
            if self.in_batch_weight is None:
                more["in_batch_weight"] = 1.0 if self.progress is None else 0.1
        return StepParts(
            labels,
            embeddings,
            proxies=self.proxies,
            class_embeddings=self.class_embeddings,
            **more,
        )

    def _references(self, labels, embeddings):
        """Yields what the batch is compared with; updates the memory."""
        if self.proxies is not None:
            is_warm = None
            if self.progress is not None:
                is_warm = ops.equal(self.progress.is_warming_up, 0)
            names, rows = self.proxies.proxy_labels, self.proxies.flat_proxies()
            yield References(names, rows, is_warm=is_warm)
        if self.memory is not None:
            kept: Any = self.memory(embeddings, labels, training=True)
            warms_up = self.memory.warmup_steps > 0
            is_warm = self.memory.is_warm if warms_up else None
            yield References(kept[0], kept[1], kept[2], is_warm)

    def _numbers(self, x, y, is_training=False):
        """Labels y as int32; of a data set x the first ones are checked."""
        if y is None:
            labels = first_labels(x)
            if is_training:
                self._forget_other_names(None)
                self._check_class_numbers(labels)
            return None
        y, names = label_numbers(y, getattr(self.loss, "ignore_class", None))
        if is_training:
            names = None if names is None else names.tolist()
            self._forget_other_names(names)
            self._check_class_numbers(y, names)
        return y

    def _forget_other_names(self, names):
        """Empties a memory whose labels are the codes of other names."""
        if self.memory is not None and self.memory.built:
            if names != self._names:
                self.memory.reset_state()
        self._names = names

    def _check_class_numbers(self, labels, names=None):
        """Raises for host labels without proxies or class embeddings."""
        num_classes = self._num_classes()
        if num_classes is None or labels is None or not is_host(labels):
            return
        is_right = (labels >= 0) & (labels < num_classes)
        is_right |= labels == getattr(self.loss, "ignore_class", None)
        if names or not is_right.all():
            raise ValueError(
                "With proxies or class embeddings, labels must be whole "
                f"numbers in [0, num_classes={num_classes}). Received: "
                f"{names[:3] if names else labels[~is_right][0]}. Map other "
                "labels by `numpy.unique(labels, return_inverse=True)[1]`."
            )

    def _num_classes(self):
        """Classes that have proxies or class embeddings, `None` without."""
        part = self.proxies or self.class_embeddings
        return part and part.num_classes

    def _checked_loss(self, loss, labels):
        """The loss; raises, or is NaN on JAX, for a label without proxies."""
        num_classes = self._num_classes()
        if num_classes is None:
            return loss
        ignored = getattr(self.loss, "ignore_class", None)
        if ignored is not None:
            is_ignored = ops.equal(labels, ops.cast(ignored, labels.dtype))
            labels = ops.where(is_ignored, ops.zeros_like(labels), labels)
        return nan_without_row(
            loss, ops.min(class_indices(labels, num_classes))
        )

    def _check_weights(self):
        check_count(batch_chunks=self.batch_chunks)
        if self.batch_chunks > 1 and not (_ON_TENSORFLOW or _ON_JAX):
            raise ValueError(
                "`batch_chunks` needs TensorFlow or JAX. Received: "
                f"batch_chunks={self.batch_chunks} with KERAS_BACKEND=torch."
            )
        is_measured = _ON_TENSORFLOW and self.regularizer is not None
        if self.log_regularizer_share and not is_measured:
            raise ValueError(
                "`log_regularizer_share` needs a regularizer, and TensorFlow. "
                f"Received: regularizer={self.regularizer!r} with "
                f"KERAS_BACKEND={keras.backend.backend()}."
            )
        check_interval("[0, 1]", regularizer_weight=self.regularizer_weight)
        for name in ("anchor_weight", "in_batch_weight"):
            if getattr(self, name) is not None:
                check_interval("[0, inf)", **{name: getattr(self, name)})
        weight = self.in_batch_weight
        if self.proxies is self.memory is None and weight not in (None, 1.0):
            raise ValueError(
                "`in_batch_weight` must be None, or 1, without `proxies` and "
                f"`memory`. Received: in_batch_weight={weight}."
            )

    def _check_regularizer(self):
        if self.regularizer is None:
            return
        self._check_needs(self.regularizer)
        outputs = self.encoder.output if self.encoder.built else {}
        needs = self.regularizer.needs
        if "histograms" in needs and not isinstance(outputs, dict):
            raise ValueError(
                'A regularizer needs an encoder that returns a "histogram". '
                "Received: an encoder with one output. Build it with "
                "`GeneralizedSumPooling(return_histogram=True)` or with "
                "`build_encoder(..., histogram=PrototypeHistogram())`."
            )

    def _check_loss(self, loss):
        if isinstance(loss, Regularizer):
            loss()  # Says where it belongs.
        if not hasattr(loss, "training_loss"):
            raise TypeError(
                "`loss` must be a pair loss or a proxy loss of this package, "
                f"or another `MetricLoss`. Received: loss={loss!r}."
            )
        self._check_needs(loss)
        used = {*loss.needs, *loss.takes}
        used |= {*getattr(self.regularizer, "needs", ())}
        is_present = {
            "proxies": self.proxies is not None,
            "memory": self.memory is not None,
            "in_batch_weight": (self.in_batch_weight or 0.0) > 0.0,
        }
        for name, is_there in is_present.items():
            if is_there and name not in used:
                raise ValueError(
                    f"{type(loss).__name__} cannot use `{name}`; `memory` and "
                    "`in_batch_weight` need a pair loss, `proxies` that or a "
                    f"proxy loss. Received: {name}={getattr(self, name)!r}."
                )

    def _check_needs(self, loss):
        """Raises unless the learner has every part that a loss needs."""
        for name, example in _PARTS.items():
            if name in loss.needs and getattr(self, name) is None:
                raise ValueError(
                    f"{type(loss).__name__} needs {name}: give MetricLearner "
                    f"`{name}={example}`. Received: {name}=None."
                )


def _check_no_sample_weight(sample_weight):
    if sample_weight is not None:
        raise ValueError(
            "MetricLearner takes no sample weights; see "
            "`gsp.data.ClassBalancedSampler`. Received: sample_weight of "
            f"shape {tuple(sample_weight.shape)}."
        )


def _gather_replicas(tensor: Tensor) -> Tensor:
    """Joins the replicas' parts of a tensor to (global batch, ...)."""
    if _num_replicas() == 1:
        return tensor
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None:
        # Keras traces the loss once outside the replicas, for its shape.
        return tensor
    # The identity turns a per-replica input into a tensor of this replica.
    gathered = context.all_gather(tf.identity(tensor), axis=0)
    if tensor.shape[0] is not None:
        # Keras compares static shapes; `all_gather` forgets them.
        size = tensor.shape[0] * context.num_replicas_in_sync
        gathered.set_shape((size, *tensor.shape[1:]))
    return gathered


def _share_of_replica(loss: Tensor) -> Tensor:
    """Divides the global loss by the replicas, whose gradients are summed."""
    return loss / _num_replicas()


def _num_replicas() -> int:
    """Replicas of `tf.distribute`; 1 without a strategy and on JAX."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def _measured_weights(encoder: keras.Model) -> list:
    """Returns the weights of `"projection"`, or all without such a layer."""
    for layer in getattr(encoder, "layers", ()):
        if layer.name == "projection" and layer.trainable_variables:
            return layer.trainable_variables
    return encoder.trainable_variables


def _gradient_share(metric: Iterable, regularizer: Iterable) -> Tensor:
    """Returns `|r| / (|m| + |r|)` of two lists of gradients, 0 for 0 / 0."""
    metric_norm, norm = _norm(metric), _norm(regularizer)
    total = metric_norm + norm
    return norm / ops.where(total == 0.0, 1.0, total)


def _norm(gradients):
    squares = [
        ops.sum(ops.square(ops.cast(gradient, "float32")))
        for gradient in gradients
        if gradient is not None
    ]
    return ops.sqrt(sum(squares, ops.zeros(())))
