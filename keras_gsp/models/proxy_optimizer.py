"""An optimizer with a separate learning rate for proxies."""

import re
from typing import Any

import keras


def proxy_optimizer(
    model: keras.Model, optimizer: Any, learning_rates: dict[str, Any]
) -> Any:
    r"""Builds an optimizer with separate learning rates for some weights.

    The papers train proxies at 100 times the network's rate.

    Args:
        model: built model, a `MetricLearner` or any other.
        optimizer: `keras.optimizers.Optimizer` for all other weights. Those
            of each name get a copy of it with their learning rate;
            `global_clipnorm` clips the gradient of each copy.
        learning_rates: dict from the end of a variable's path, in whole
            words, to a learning rate (number above 0, or schedule). `"proxies"`
            names the proxies of every `ClassProxies`.

    Returns:
        `keras.optimizers.MultiOptimizer`. It has no `learning_rate`, its
        `optimizers` do: pass a schedule for each, not `LearningRateScheduler`.

    Raises:
        TypeError: `optimizer` is not an optimizer, or wraps another one.
        ValueError: a name that matches no trainable variable, a variable
            matched by two names.

    Example:

    ```python
    model = keras.Sequential(
        [keras.Input((8,)), gsp.layers.ClassProxies(num_classes=3)]
    )
    optimizer = gsp.models.proxy_optimizer(
        model, keras.optimizers.Adam(1e-4), {"proxies": 1e-2}
    )
    model.compile(optimizer, loss=gsp.losses.ProxyNCALoss())
    ```
    """
    wrappers = (
        keras.optimizers.MultiOptimizer,
        keras.optimizers.LossScaleOptimizer,
    )
    is_optimizer = isinstance(optimizer, keras.optimizers.Optimizer)
    if isinstance(optimizer, wrappers) or not is_optimizer:
        raise TypeError(
            "`optimizer` must be a Keras optimizer that wraps no other. "
            f"Received: optimizer={optimizer!r}."
        )
    paths = [variable.path for variable in model.trainable_variables]
    # For Keras's `fullmatch` on the whole path of a variable.
    patterns = {name: r"(?:.*/)?" + re.escape(name) for name in learning_rates}
    _check_matches(patterns, paths)
    chosen = {
        pattern: _copy_with_rate(optimizer, name, learning_rates[name])
        for name, pattern in patterns.items()
    }
    return keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(optimizer, chosen)
    )


def _copy_with_rate(optimizer, name, learning_rate):
    config = optimizer.get_config()
    config["name"] = f"{config['name']}_{name.replace('/', '_')}"
    config["learning_rate"] = learning_rate
    return type(optimizer).from_config(config)


def _check_matches(patterns, paths):
    owners: dict[str, str] = {}
    for name, pattern in patterns.items():
        matched = [path for path in paths if re.fullmatch(pattern, path)]
        if not matched:
            raise ValueError(
                f"`learning_rates` names {name!r}, but no trainable variable "
                f"path ends so. Received: a model with the paths {paths}; an "
                "unbuilt model has none, build it first."
            )
        for path in matched:
            if owners.setdefault(path, name) != name:
                raise ValueError(
                    f"`learning_rates` matches {path!r} twice. "
                    f"Received: {owners[path]!r} and {name!r}."
                )
