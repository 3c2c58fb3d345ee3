"""The optimizer of a recipe, and its schedule."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import keras
from keras import ops

import keras_gsp as gsp
from training.recipes.recipe import Recipe

# First parts of the paths of weights after the backbone, without proxies.
HEAD = ("projection", "pooling", "histogram", "class_embeddings")


@keras.saving.register_keras_serializable(package="keras_gsp.training")
@dataclass(eq=False)
class Rate(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that is held at 0, rises, and falls in a cosine.

    `peak` after `hold` steps at 0 and `ramp` steps of a linear rise; the fall
    to 0 begins at step `fall_start` and ends at `fall` (None: no fall).
    """

    peak: float
    hold: int = 0
    ramp: int = 0
    fall: int | None = None
    fall_start: int = 0

    def __call__(self, step: Any) -> Any:
        """Returns the rate at a step."""
        step = ops.cast(step, "float32")
        risen = ops.clip((step + 1 - self.hold) / max(self.ramp, 1), 0.0, 1.0)
        rate = self.peak * risen
        if self.fall is not None:
            length = self.fall - self.fall_start
            share = ops.clip((step - self.fall_start) / length, 0.0, 1.0)
            rate = rate * 0.5 * (1.0 + ops.cos(math.pi * share))
        return rate

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return asdict(self)


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
    optimizer = keras.optimizers.AdamW(rate, weight_decay=1e-4)
    if rates:
        return gsp.models.proxy_optimizer(learner, optimizer, rates)
    return optimizer


def _rate(recipe, peak, hold=0):
    if not (recipe.fall_share or hold or recipe.ramp_steps):
        return peak
    if not recipe.fall_share:
        return Rate(peak, hold, recipe.ramp_steps)
    length = max(1, round(recipe.steps * recipe.fall_share))
    start = recipe.steps - length
    return Rate(peak, hold, recipe.ramp_steps, recipe.steps, start)
