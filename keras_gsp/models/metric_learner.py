"""The model that trains an encoder, with all that only training needs."""

import keras
from keras import ops

from keras_gsp.models.anchors import AnchoredWeights
from keras_gsp.models.encoder import embedding_of, histogram_of
from keras_gsp.models.learner_parts import (
    check_loss_fits,
    check_parts,
    serialized_parts,
)
from keras_gsp.models.metric_loss import metric_loss, validation_loss
from keras_gsp.models.problem_progress import ProblemProgress
from keras_gsp.models.regularization import regularizer_loss
from keras_gsp.models.replicas import gather_replicas, share_of_replica
from keras_gsp.ops.labels import check_same_length, flat_labels


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
    - a pair loss alone: within the batch.

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
            `"embedding"` and `"histogram"`; see `build_encoder`.
        proxies: optional `ClassProxies`; needed by proxy losses.
        regularizer: optional `ZeroShotLoss` or `CrossBatchLoss`; both need an
            encoder that returns histograms.
        regularizer_weight: w, in [0, 1]. Default 0.1, the paper's for the
            zero-shot loss (0.01 for the cross-batch loss).
        memory: optional `EmbeddingMemory`, for pair losses.
        anchor_weight: lambda, at least 0. Default 0, no anchors; 2e-4 in the
            papers.
        class_embeddings: `ClassEmbeddings`, needed by `ZeroShotLoss`.
        in_batch_weight: weight of the loss within the batch beside proxies or
            memory, at least 0. Default 0 (paper); 0.1 in the reference code.
        anchor_decay: factor on lambda from problem to problem, in (0, 1].
            Default 1.
        seed: integer, seed of the split into class-disjoint halves.
        **kwargs: `name` and other arguments of a Keras model.

    Call arguments:
        inputs: a batch of images.

    Returns:
        The encoder's output.

    Raises:
        ValueError: parts that do not fit each other, a weight outside its
            range.
        TypeError: at `compile`, a loss that is neither a pair loss nor a
            proxy loss.

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
        in_batch_weight=0.0,
        anchor_decay=1.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_parts(
            encoder,
            proxies=proxies,
            regularizer=regularizer,
            regularizer_weight=regularizer_weight,
            class_embeddings=class_embeddings,
            anchor_weight=anchor_weight,
            anchor_decay=anchor_decay,
            in_batch_weight=in_batch_weight,
        )
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
        for part in (self.proxies, self.memory):
            if part is not None and not part.built:
                part.build(embedding_shape)
        if self.class_embeddings is not None:
            if not self.class_embeddings.built:
                self.class_embeddings.build((None,))
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
            loss: a pair loss or a proxy loss of `keras_gsp.losses`.
            **kwargs: the other arguments of `keras.Model.compile`.

        Raises:
            TypeError: any other loss.
            ValueError: a proxy loss without proxies, or with a memory.
        """
        check_loss_fits(
            loss,
            proxies=self.proxies,
            memory=self.memory,
            in_batch_weight=self.in_batch_weight,
        )
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
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
        labels = flat_labels(y)
        check_same_length(labels, embedding_of(y_pred))
        labels = gather_replicas(labels)
        embeddings = gather_replicas(embedding_of(y_pred))
        if not training:
            loss = validation_loss(self, labels, embeddings)
        else:
            loss = metric_loss(self, labels, embeddings)
            if self.regularizer is not None:
                weight = self.regularizer_weight
                histograms = gather_replicas(histogram_of(y_pred))
                loss = (1.0 - weight) * loss + weight * regularizer_loss(
                    self, labels, histograms, embeddings
                )
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
        return {"name": self.name, **serialized_parts(self)}

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
