"""A horseshoe on ell: its point is refused, its scales start at their median, and both are recovered."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_prme import Batch
from pyro_prme.guide import PRMEGuide
from pyro_prme.rules import Point
from pyro_prme.swaps import HorseshoePRME, simulate_corpus
from pyro_prme.train import Trainer

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from swap_trials import GivenPRME, equal_sticks, known, pairs

K, N, DIM, LENGTH = 10, 150, 3, 60


def model(x):
    """Topics that are known and answer to metadata, h_n = x_n."""
    made = known(HorseshoePRME, GivenPRME, num_topics=K, dim=DIM, beta=20.0, ell_scale=0.1)(len(x))
    made.metadata = x
    return made


def batch():
    return Batch.from_csr(np.ones((N, 2 * K), dtype=np.int64))


def test_a_horseshoes_point_is_refused_and_fitted_with_a_proper_posterior():
    plan = PRMEGuide(model(torch.zeros(N, DIM))).plan(batch())
    assert "density of ell at its mode, with that of lambda, has no maximum" in str(plan)
    with pytest.raises(ValueError, match="rule asked for at site ell does not hold"):
        PRMEGuide(model(torch.zeros(N, DIM)), rules={"ell": Point()}).plan(batch())


def test_scales_without_a_mean_start_at_their_median():
    guide = PRMEGuide(model(torch.zeros(N, DIM)))
    guide.plan(batch())
    torch.testing.assert_close(guide.rule("lambda").loc.exp(), torch.ones(K))


@pytest.mark.parametrize("seed", range(3))
def test_topics_that_answer_to_metadata_are_found_and_the_others_shrunk(seed):
    """ell within a fifth where it is 1.5 long, and below a fifth where it is 0; lambda_k as long as it was, by a third.

    N(0, b) with b of any size does one of the two worse, see `benchmarks/swaps.py`.
    """
    torch.manual_seed(seed)
    x, ell = torch.randn(N, DIM), torch.zeros(K, DIM)
    ell[0, 0], ell[1, 1] = 1.5, -1.5
    counts, _ = simulate_corpus(model(x), [LENGTH] * N, seed, theta=pairs(K), V=equal_sticks(K), ell=ell)
    fitted = model(x)
    guide = PRMEGuide(fitted)
    Trainer(fitted, guide, counts, batch_size=N, learning_rate=0.05, start=None, seed=seed).fit(200)
    found, scale = guide.rule("ell").loc.detach(), guide.rule("lambda").loc.detach().exp()
    assert (found - ell)[:2].norm(dim=-1).max() < 0.3
    assert found[2:].norm(dim=-1).max() < 0.2
    root_mean_square = 1.5 / (0.1 * DIM**0.5)
    torch.testing.assert_close(scale[:2], torch.full((2,), root_mean_square), rtol=1 / 3, atol=0)
    assert scale[2:].max() < 2
