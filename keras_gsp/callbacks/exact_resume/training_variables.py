"""Every variable that training changes, and whether two sets of them match."""

import contextlib

import keras


def training_variables(model: keras.Model) -> dict:
    """Returns every variable of a model and its optimizer by name.

    Weights, states of random generators, optimizer slots and counters; not
    the metrics, which begin anew each epoch. Names are positions, not paths:
    Keras numbers the paths anew in every process.

    Args:
        model: built and compiled; its optimizer is built if it is not.

    Raises:
        RuntimeError: the model is not built or not compiled.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not model.built:
        raise RuntimeError(
            "The model must be built and compiled before its state can be "
            "restored. Call it on one batch, and `compile`."
        )
    if not optimizer.built:
        strategy = getattr(model, "distribute_strategy", None)
        scope = strategy.scope() if strategy else contextlib.nullcontext()
        with scope:
            optimizer.build(model.trainable_variables)
    named = {f"model/{i}": v for i, v in enumerate(model.variables)}
    slots = {f"optimizer/{i}": v for i, v in enumerate(optimizer.variables)}
    return named | slots


def check_same_variables(arrays: dict, variables: dict) -> None:
    """Raises `ValueError` unless arrays fit variables in dtype and shape.

    Args:
        arrays: by name; those of callbacks, `"callbacks/..."`, are left out.
        variables: what `training_variables` returned.
    """
    saved = {
        name: f"{array.dtype.name} {array.shape}"
        for name, array in arrays.items()
        if not name.startswith("callbacks")
    }
    given = {
        name: f"{variable.dtype} {tuple(variable.shape)}"
        for name, variable in variables.items()
    }
    for name in sorted(saved.keys() | given.keys()):
        if saved.get(name) != given.get(name):
            path = variables[name].path if name in variables else name
            raise ValueError(
                "The model and its optimizer must have the variables of the "
                f"checkpoint. Received: `{path}`, {given.get(name)}; in the "
                f"checkpoint, {saved.get(name)}."
            )
