"""The optimizer of a recipe: its schedules, and the papers' weight decay."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import keras
from keras import ops

import keras_gsp as gsp
from keras_gsp._compat import learning_rate_of
from training.recipes.recipe import Recipe

# First parts of the paths of weights after the backbone, without proxies.
HEAD = ("projection", "pooling", "histogram", "class_embeddings")


@keras.saving.register_keras_serializable(package="keras_gsp.training")
class CoupledAdam(keras.optimizers.Adam):
    """Adam with weight decay as a part of the gradient, as in the papers' code.

    `keras.optimizers.AdamW` multiplies the decay by the learning rate: at the
    papers' rate of 1e-5 a decay of 1e-4 does nothing there. Here
    `gradient + l2 * weight` is clipped and enters the moments.
    """

    def __init__(
        self, learning_rate: Any = 0.001, l2: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        self.l2 = l2

    def apply(
        self, grads: Sequence, trainable_variables: Sequence | None = None
    ) -> None:
        """Applies gradients, with the weight decay added."""
        variables = trainable_variables
        if variables is None:
            variables = self._trainable_variables
        decayed = [
            None if gradient is None else gradient + self._decay(v, gradient)
            for gradient, v in zip(grads, variables, strict=True)
        ]
        super().apply(decayed, trainable_variables)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return super().get_config() | {"l2": self.l2}

    def _decay(self, variable, gradient):
        weight = ops.convert_to_tensor(variable)
        return ops.cast(self.l2 * weight, gradient.dtype)


@keras.saving.register_keras_serializable(package="keras_gsp.training")
@dataclass(eq=False)
class Rate(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that is held at 0, rises, and falls in a cosine.

    `peak` after `hold` steps at 0 and `ramp` steps of a linear rise; the fall
    to 0 begins at step `fall_start` and ends at `fall` (None: no fall).
    `RateOnPlateau` lowers `factor`.
    """

    peak: float
    hold: int = 0
    ramp: int = 0
    fall: int | None = None
    fall_start: int = 0

    def __post_init__(self) -> None:
        self.factor = keras.Variable(1.0, trainable=False, name="rate_factor")

    def __call__(self, step: Any) -> Any:
        """Returns the rate at a step."""
        step = ops.cast(step, "float32")
        risen = ops.clip((step + 1 - self.hold) / max(self.ramp, 1), 0.0, 1.0)
        rate = self.peak * self.factor * risen
        if self.fall is not None:
            length = self.fall - self.fall_start
            share = ops.clip((step - self.fall_start) / length, 0.0, 1.0)
            rate = rate * 0.5 * (1.0 + ops.cos(math.pi * share))
        return rate

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return asdict(self)


class RateOnPlateau(keras.callbacks.Callback):
    """Lowers all rates when a score has not improved for some evaluations.

    `keras.callbacks.ReduceLROnPlateau` needs one optimizer with one rate. Only
    on TensorFlow: other backends keep the rate that a step was compiled with.
    """

    def __init__(self, monitor: str, patience: int, factor: float) -> None:
        super().__init__()
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "`schedule=plateau` must run on TensorFlow; `cosine` runs "
                f"everywhere. Received: backend {keras.backend.backend()}."
            )
        self.monitor = monitor
        self.patience = patience
        self.factor = factor
        self.best = -math.inf
        self.waited = 0
        self.scale = 1.0

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Sets the rates, also those of a resumed run."""
        optimizer = self.model.optimizer
        for one in getattr(optimizer, "optimizers", [optimizer]):
            learning_rate_of(one).factor.assign(self.scale)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Lowers the rates when the score does not improve."""
        logs = {} if logs is None else logs
        score = logs[self.monitor]
        self.waited += 1
        if score > self.best:
            self.best, self.waited = score, 0
        if self.waited >= self.patience:
            self.waited = 0
            self.scale *= self.factor
        logs["rate_factor"] = self.scale


def build_optimizer(recipe: Recipe, learner: Any) -> Any:
    """Returns the optimizer of a recipe for a built learner."""
    rates, base = {}, recipe.learning_rate
    if recipe.uses_proxies:
        factor = recipe.proxy_learning_rate_multiplier
        rates["proxies"] = _rate(recipe, base * factor)
    factor = recipe.backbone_learning_rate_multiplier
    if recipe.warmup_steps or factor != 1:
        rate = _rate(recipe, base)
        paths = [variable.path for variable in learner.trainable_variables]
        head = [path for path in paths if path.split("/")[0] in HEAD]
        rates |= dict.fromkeys(head, rate)
    rate = _rate(recipe, base * factor, hold=recipe.warmup_steps)
    kind, decay = {
        "adam": (CoupledAdam, "l2"),
        "adamw": (keras.optimizers.AdamW, "weight_decay"),
    }[recipe.optimizer]
    settings = {decay: recipe.weight_decay, "global_clipnorm": recipe.clip_norm}
    optimizer = kind(rate, **settings)
    if rates:
        return gsp.models.proxy_optimizer(learner, optimizer, rates)
    return optimizer


def _rate(recipe, peak, hold=0):
    if recipe.schedule == "constant" and not hold and not recipe.ramp_steps:
        return peak
    if recipe.schedule != "cosine":
        return Rate(peak, hold, recipe.ramp_steps)
    length = max(1, round(recipe.steps * recipe.fall_share))
    start = recipe.steps - length
    return Rate(peak, hold, recipe.ramp_steps, recipe.steps, start)
