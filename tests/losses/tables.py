"""The tables of pair and of proxy losses as one."""

import pytest

from tests.losses import pair_oracle, proxy_oracle
from tests.losses.pair_oracle import PAIR_LOSSES
from tests.losses.proxy_oracle import PROXY_LOSSES

CASES = [*PAIR_LOSSES, *PROXY_LOSSES]
every_case = pytest.mark.parametrize("case", CASES)
every_pair_case = pytest.mark.parametrize("case", PAIR_LOSSES)
every_proxy_case = pytest.mark.parametrize("case", PROXY_LOSSES)


def table(case):
    """The module with `make`, `batch` and `oracle` of a row."""
    return pair_oracle if case in PAIR_LOSSES else proxy_oracle


def make(case, **arguments):
    return table(case).make(case, **arguments)
