"""Losses that classify by a softmax over class proxies."""

import math
from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_not_negative, check_positive, check_shape
from keras_gsp._configured import Configured
from keras_gsp._tensor import Tensor
from keras_gsp.losses.proxy_similarity import (
    ProxyLoss,
    nearest_of_class,
    own_similarities,
    softmax_terms,
)
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.normalization import unit_sphere


class NormalizedSoftmaxLoss(ProxyLoss):
    r"""Classifies embeddings by their cosine to each class's proxy.

    With :math:`s_c` the cosine of an embedding and the nearest proxy of class
    c, y its own class, T the temperature, the mean over samples of

    .. math:: -\log \frac{e^{s_y / T}}{\sum_c e^{s_c / T}}

    `ProxyNCALoss` adds the probabilities of a class's proxies instead.

    Args:
        temperature: what cosines are divided by, positive. Default 0.05.

    Example:
        ```python
        proxies = gsp.layers.ClassProxies(num_classes=3)
        loss = gsp.losses.NormalizedSoftmaxLoss()
        value = loss([0, 1, 2], proxies(np.eye(3, 8)))
        ```

    Reference:
        Zhai and Wu, "Classification is a Strong Baseline", BMVC 2019, section
        3.1, without its layer normalization.
    """

    def __init__(self, temperature: float = 0.05, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        nearest = nearest_of_class(similarities)
        target = own_similarities(labels, nearest)
        differences = (nearest - target[:, None]) / self.temperature
        return softmax_terms(labels, differences)


class CosFaceLoss(ProxyLoss):
    r"""Classifies with a cosine margin on the true class (CosFace).

    With :math:`s_c` the cosine of an embedding and the nearest proxy of class
    c, y its own class, the mean over samples of

    .. math:: -\log \frac{e^{(s_y - \text{margin}) / T}}
        {e^{(s_y - \text{margin}) / T} + \sum_{c \neq y} e^{s_c / T}}

    Args:
        margin: cosine, at least 0. Default 0.35.
        temperature: T, positive. Default 1 / 64, the inverse of the paper's
            scale.

    Example:
        ```python
        proxies = gsp.layers.ClassProxies(num_classes=3)
        value = gsp.losses.CosFaceLoss()([0, 1, 2], proxies(np.eye(3, 8)))
        ```

    Reference:
        Wang et al., "CosFace", CVPR 2018, equation (4).
    """

    def __init__(
        self, margin: float = 0.35, temperature: float = 1 / 64, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        check_positive(temperature=temperature)
        self.margin = margin
        self.temperature = temperature

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        nearest = nearest_of_class(similarities)
        target = own_similarities(labels, nearest) - self.margin
        return softmax_terms(
            labels, (nearest - target[:, None]) / self.temperature
        )


class ArcFaceLoss(ProxyLoss):
    r"""Classifies with an angular margin on the true class (ArcFace).

    With :math:`\theta_c` the angle between an embedding and the nearest proxy
    of class c (sub-centers), y its own class, the mean over samples of

    .. math:: -\log \frac{e^{\cos(\theta_y + \text{margin}) / T}}
        {e^{\cos(\theta_y + \text{margin}) / T}
        + \sum_{c \neq y} e^{\cos \theta_c / T}}

    Where :math:`\theta_y + \text{margin}` exceeds pi the cosine would rise
    again; it is replaced by :math:`\cos \theta_y - \text{margin}
    \sin(\text{margin})`, which falls, as in the paper's code. At an angle of
    exactly 0 or pi the infinite gradient of the angle counts as 0.

    Args:
        margin: radians, in [0, pi / 2]. Default 0.5 (28.6 degrees).
        temperature: T, positive. Default 1 / 64, the inverse of the paper's
            scale.

    Example:
        ```python
        proxies = gsp.layers.ClassProxies(num_classes=3, proxies_per_class=2)
        value = gsp.losses.ArcFaceLoss()([0, 1, 2], proxies(np.eye(3, 8)))
        ```

    Reference:
        Deng et al., "ArcFace", CVPR 2019, equation (3); "Sub-center ArcFace",
        ECCV 2020, section 3.2.
    """

    def __init__(
        self, margin: float = 0.5, temperature: float = 1 / 64, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        if not 0.0 <= margin <= math.pi / 2.0:
            raise ValueError(
                "`margin` must be in [0, pi / 2], in radians. "
                f"Received: margin={margin}."
            )
        self.margin = margin
        self.temperature = temperature

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        nearest = nearest_of_class(similarities)
        target = self._turned(own_similarities(labels, nearest))
        return softmax_terms(
            labels, (nearest - target[:, None]) / self.temperature
        )

    def _turned(self, cosines):
        """The cosine of the angle plus the margin."""
        squares = 1.0 - ops.square(cosines)
        is_straight = squares <= 0.0
        # Double `where`: sqrt never sees the zero whose gradient is infinite.
        sines = ops.sqrt(ops.where(is_straight, 1.0, squares))
        sines = ops.where(is_straight, 0.0, sines)
        turned = cosines * math.cos(self.margin) - sines * math.sin(self.margin)
        falling = cosines - self.margin * math.sin(self.margin)
        return ops.where(cosines >= -math.cos(self.margin), turned, falling)


class ProxyNCALoss(ProxyLoss):
    """Softmax cross-entropy over the cosines to all proxies (Proxy-NCA++).

    With `s` the cosine of embedding and proxy, T the temperature:

    `mean_samples -log( sum_own exp(s / T) / sum_all exp(s / T) )`

    Here, as in the GSP papers' code, the temperature divides the cosine.
    Proxy-NCA++ divides the negative squared distance of unit vectors,
    `2 s - 2`, so its temperature is twice ours: the default 0.11 is 0.22
    there, and its published 1/9 is 1/18 here.

    Args:
        temperature: what cosines are divided by, positive. Default 0.11.

    Example:
        ```python
        model = keras.Sequential([gsp.layers.ClassProxies(num_classes=3)])
        model.compile("adam", loss=gsp.losses.ProxyNCALoss())
        model.fit(np.random.normal(size=(12, 8)), np.arange(12) % 3, verbose=0)
        ```

    Reference:
        Teh et al., "ProxyNCA++", ECCV 2020, section 3; default of Gürbüz et
        al., ICCV 2023. The text of the chance-constrained paper has 0.1.
    """

    def __init__(self, temperature: float = 0.11, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        logits = similarities / self.temperature
        target = ops.logsumexp(own_similarities(labels, logits), axis=-1)
        return ops.logsumexp(logits, axis=(1, 2)) - target


class SoftTripleLoss(ProxyLoss):
    """Classifies by a soft maximum over each class's centers.

    With `s_ck` the cosine of an embedding and center k of class c:

    `S_c = sum_k softmax_k(s_ck / gamma) s_ck`

    `mean_samples -log( exp(scale (S_y - margin)) / ( exp(scale (S_y -
    margin)) + sum_{c != y} exp(scale S_c) ) )`

    `CenterRegularizer`, given to the proxies, pulls centers together.

    Args:
        scale: inverse temperature of the classes' softmax, positive (lambda
            in the paper). Default 20.
        gamma: temperature of the choice among a class's centers, positive.
            Default 0.1.
        margin: cosine subtracted from the own class, at least 0 (delta in the
            paper). Default 0.01.

    Example:
        ```python
        regularizer = gsp.losses.CenterRegularizer(0.2)
        proxies = gsp.layers.ClassProxies(
            num_classes=3, proxies_per_class=2, proxies_regularizer=regularizer
        )
        value = gsp.losses.SoftTripleLoss()([0, 1, 2], proxies(np.eye(3, 8)))
        ```

    Reference:
        Qian et al., "SoftTriple Loss", ICCV 2019, sections 3.2 and 3.3. The
        GSP papers' code has negative distances in place of cosines, classes
        and centers transposed, a softmax that underflows; their gamma of 19.18
        and 47.9 looks like the inverse of this one.
    """

    def __init__(
        self,
        scale: float = 20.0,
        gamma: float = 0.1,
        margin: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(scale=scale, gamma=gamma)
        check_not_negative(margin=margin)
        self.scale = scale
        self.gamma = gamma
        self.margin = margin

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        relaxed = self._relaxed(similarities)
        target = own_similarities(labels, relaxed) - self.margin
        return softmax_terms(labels, self.scale * (relaxed - target[:, None]))

    def _relaxed(self, similarities):
        if similarities.shape[-1] == 1:
            return similarities[:, :, 0]  # Keras warns of softmax over one
        choice = ops.softmax(similarities / self.gamma, axis=-1)
        return ops.sum(choice * similarities, axis=-1)


class CenterRegularizer(Configured, keras.regularizers.Regularizer):
    """Penalizes the distances between the proxies of one class (SoftTriple).

    `weight / (C K (K - 1)) sum_c sum_{s < t} |w_cs - w_ct|`

    over the normalized proxies w of C classes with K proxies each: `weight`
    times half the mean distance between two proxies of a class; 0 with one
    proxy a class. Equal proxies have no gradient. See `SoftTripleLoss` for an
    example and the reference, whose proxies are normalized too; the code of
    the GSP papers does not normalize them.

    Args:
        weight: at least 0 (tau in the paper). Default 0.2, as in its code.
    """

    def __init__(self, weight: float = 0.2) -> None:
        check_not_negative(weight=weight)
        self.weight = weight

    def __call__(self, proxies: Tensor) -> Tensor:
        """Returns the penalty, a scalar in float32 or float64.

        `proxies`: (num_classes, proxies_per_class, embedding_size).
        """
        shape = "(num_classes, proxies_per_class, embedding_size)"
        check_shape(shape, proxies=proxies)
        num_classes, per_class, _ = proxies.shape
        centers = unit_sphere(proxies)
        if per_class == 1:
            return ops.zeros((), dtype=centers.dtype)
        # Both orders of each pair: twice the sum over s < t.
        distances = ops.sum(pairwise_distances(centers, centers))
        pairs = num_classes * per_class * (per_class - 1)
        return self.weight * distances / (2.0 * pairs)
