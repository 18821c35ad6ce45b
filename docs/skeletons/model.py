"""A skeleton to copy: a model of your own, in plain Pyro, fitted by closed forms where its structure has them.

Here: each shop sells items at a rate of its own, and the rates have a common scale. `tests/docs/test_skeletons.py`
fits it.
"""

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.inference import ClosedFormGuide, fit

__all__ = ["fit_sales", "sales"]


def sales(counts: Tensor) -> None:
    """Items sold by each shop on each day, (shops, days).

    Write the densities as they are in your paper. Use plates for what is independent, give every site a name of your
    own (names decide nothing), and say which sites are observed with ``obs=``.
    """
    shops, days = counts.shape
    scale = pyro.sample("scale", dist.Gamma(2.0, 1.0))
    with pyro.plate("shops", shops, dim=-2):
        rate = pyro.sample("rate", dist.Gamma(3.0, scale))
        with pyro.plate("days", days, dim=-1):
            pyro.sample("sold", dist.Poisson(rate), obs=counts)


def fit_sales(counts: Tensor) -> tuple[ClosedFormGuide, Tensor]:
    """A fitted guide, and the mean of each shop's rate (shops,).

    Read the plan first: it says which site has a closed form, and for every other one why not.
    """
    guide = ClosedFormGuide(sales)
    print(guide.plan(counts))
    fit(guide, counts)
    with torch.no_grad():
        return guide, guide.run(counts).factor("rate").mean.squeeze(-1)
