"""ScaNN, when it is installed and fits the TensorFlow beside it."""


def import_scann():
    """Imports ScaNN, an optional dependency.

    Returns:
        The module `scann`.

    Raises:
        ImportError: ScaNN is missing, or its operations do not load.
    """
    try:
        import scann
    # An op library built for another TensorFlow raises errors of all kinds.
    except Exception as error:  # noqa: BLE001
        raise ImportError(
            "`ScannIndex` needs ScaNN, which has wheels for Linux: "
            "pip install 'keras-gsp[ann]' (scann==1.4.2 with TensorFlow "
            "2.20). `ExactIndex` works without it. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
    return scann
