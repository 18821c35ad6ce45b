"""Hyper-priors leave the rest of a model as it is: its factors, its dtype, its order of classes."""

import pytest
import torch
from pyro import distributions as dist
from pyro import poutine

from pyro_prme import HDP, PRME, Batch
from pyro_prme.equations.sticks import stick_weights
from pyro_prme.guide import PRMEGuide
from pyro_prme.swaps import (
    HyperPriorPRME,
    HyperPriors,
    LearnedPitmanYorPRME,
    NegativeBinomialPRME,
    PoissonPRME,
    fit,
    simulate,
)

K, D, N = 4, 12, 30
SIZE = {"h_dim": 3, "ell_dim": 2}


class LearnedPoisson(HyperPriors, PoissonPRME):
    pass


class LearnedNegativeBinomial(HyperPriors, NegativeBinomialPRME):
    pass


class LearnedHDP(HyperPriors, HDP):
    pass


class Learned(HyperPriors, PRME):
    pass


def gamma(concentration=2.0, rate=1.0):
    return dist.Gamma(torch.tensor(concentration), torch.tensor(rate))


def prior_of(model, site, batch):
    fn = poutine.trace(model).get_trace(batch).nodes[site]["fn"]
    return type(getattr(fn, "base_dist", fn)).__name__


@pytest.mark.parametrize(
    ("kind", "kwargs", "family"),
    [
        (LearnedPoisson, {"factors": "gamma"}, "Gamma"),
        (LearnedPoisson, {}, "Dirichlet"),
        (LearnedNegativeBinomial, {}, "Gamma"),
    ],
)
def test_the_models_own_factors_are_kept(kind, kwargs, family):
    torch.manual_seed(0)
    model = kind(K, D, N, priors={"gamma0": gamma(), "beta": gamma(2.0, 0.1)}, **kwargs, **SIZE)
    batch = model.batch_of(simulate(model, N, gamma0=0.5, beta=20.0)[0])
    assert prior_of(model, "theta", batch) == family
    guide = model.make_guide()
    guide.plan(batch)
    before = float(guide.rule("gamma0").value().detach())
    history = fit(guide, batch, 20, learning_rate=0.02)
    assert history[-1] > history[0]
    assert float(guide.rule("gamma0").value().detach()) != before, "it has a gradient"


def test_numbers_may_be_tensors_with_a_gradient():
    model = PRME(K, D, N, **SIZE)
    model.gamma0, model.beta = torch.tensor(0.3, requires_grad=True), torch.tensor(7.0, requires_grad=True)
    V = torch.full((K - 1,), 0.4)
    torch.testing.assert_close(model.concentration(V).detach(), 7 * stick_weights(V))
    trace = poutine.trace(model).get_trace(Batch.to_draw([3] * N))
    torch.testing.assert_close(trace.nodes["theta"]["fn"].concentration.detach(), torch.full((K, D), 0.3))
    trace.log_prob_sum().backward()
    assert model.gamma0.grad.abs() > 0
    assert model.beta.grad.abs() > 0


def test_default_priors_have_shape_two_and_their_means():
    priors = HyperPriorPRME(K, D, N).priors
    assert {name: float(prior.mean) for name, prior in priors.items()} == pytest.approx(
        {"alpha": 2.0, "beta": 5.0, "gamma0": 0.2}
    )
    assert {float(prior.concentration) for prior in priors.values()} == {2.0}
    priors = LearnedPitmanYorPRME(K, D, N).priors
    assert float(priors["alpha"].mean) == pytest.approx(2.0)
    assert float(priors["discount"].mean) == pytest.approx(0.5)


@pytest.mark.parametrize(("default", "given"), [(torch.float64, torch.float32), (torch.float32, torch.float64)])
@pytest.mark.parametrize("name", ["alpha", "beta", "gamma0", "h_scale", "ell_scale"])
def test_priors_of_another_precision_are_taken(name, default, given):
    torch.set_default_dtype(default)
    two = torch.tensor(2.0, dtype=given)
    model = Learned(K, D, N, priors={name: dist.Gamma(two, two)}, **SIZE)
    history = fit(PRMEGuide(model), Batch.from_tokens([[0, 1, 2, 2], [3, 4, 11]]), 5)
    assert len(history) == 5


def test_sizes_and_switches_are_not_drawn():
    for name in ("num_topics", "vocab_size", "num_documents"):
        with pytest.raises(ValueError, match=f"priors has '{name}', which is a size of the model"):
            LearnedHDP(K, D, N, priors={name: gamma()})
    with pytest.raises(ValueError, match="no number of this name"):
        LearnedHDP(K, D, N, priors={"training": gamma()})
