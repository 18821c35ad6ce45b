"""How the parts are put together: rates, weights, modes and starts, each by numbers that a wrong wire changes."""

from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro import distributions as dist
from torch import Tensor, nn

from pyro_prme.equations.sticks import stick_weights
from pyro_prme.equations.updates import robbins_monro_rate
from pyro_prme.inference import ClosedFormGuide, FitOptions, RunOptions, fit
from pyro_prme.inference.claims import OpenClaim
from pyro_prme.inference.data import Tensors
from pyro_prme.inference.lazy_adam import LazyAdam
from pyro_prme.inference.optimisers import make_optimisers
from pyro_prme.inference.rules import MeanFieldNormal, Point
from pyro_prme.inference.session import evaluating

from .fits import corpus, trainer

STILL = 1e-12  # a learning rate with which nothing moves


class Named(OpenClaim):
    """A claim with one parameter and a rate of its own, or none."""

    def __init__(self, rate: float | None) -> None:
        super().__init__()
        self.sites, self.learning_rate = ("a",), rate
        self.free = nn.Parameter(torch.ones(2))


def test_each_group_of_parameters_has_its_rate_and_its_decay() -> None:
    own, common = Named(0.05), Named(None)
    table, layer, stored = nn.Embedding(3, 2, sparse=True), nn.Linear(2, 2), nn.Parameter(torch.ones(1))
    modules = nn.ModuleList([own, common, table, layer])
    dense, lazy = make_optimisers([own, common], [modules], [stored], learning_rate=0.01, weight_decay=0.1)
    found = {id(p): (group["lr"], group["weight_decay"]) for group in dense.param_groups for p in group["params"]}
    assert found.pop(id(own.free)) == (0.05, 0.0)
    rest = (common.free, layer.weight, layer.bias, stored)
    assert found == dict.fromkeys(map(id, rest), (0.01, 0.1))
    assert isinstance(lazy, LazyAdam)
    assert [(group["lr"], list(map(id, group["params"]))) for group in lazy.param_groups] == [
        (0.01, [id(table.weight)])
    ]


def test_the_sticks_have_the_rate_that_the_guide_was_given() -> None:
    t = trainer(corpus(), hyper={"stick_rate": 0.03}, learning_rate=0.002, weight_decay=0.5)
    sticks = t.guide.claim("V").free
    (group,) = [g for o in t.optimisers for g in o.param_groups if any(p is sticks for p in g["params"])]
    assert (group["lr"], group["weight_decay"]) == (0.03, 0.0)


@pytest.mark.parametrize(("model", "batch_size"), [("hdp", 20), ("prme", 50)])
def test_an_epochs_bound_is_that_of_all_data_as_it_found_them(model: str, batch_size: int) -> None:
    """Batches of unequal size, each weighted by its share; E-steps in evaluation mode; slow terms once.

    PRME has one batch, since its decoder's running mean moves after each.
    """
    t = trainer(corpus(50), model=model, hyper={"stick_rate": STILL}, batch_size=batch_size, learning_rate=STILL)
    t.guide.after_epoch(t.data)
    before = t.bound()
    record = t.epoch()
    assert record["bound"] == pytest.approx(before.total, rel=1e-8)
    assert record["terms"] == pytest.approx(before.terms, rel=1e-7)


def test_batch_mode_makes_one_natural_step_an_epoch() -> None:
    t = trainer(corpus(), model="hdp")
    before = t.guide.topics.gamma.clone()
    for rows in np.array_split(np.arange(60), 3):
        t.step(rows)
        assert torch.equal(t.guide.topics.gamma, before)


def test_the_rate_of_online_steps_falls_as_steps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    t = trainer(corpus(), model="hdp", mode="online", delay=2.0, decay=0.7)
    monkeypatch.setattr(t, "_natural_step", rates.append)
    t.fit(2)
    assert rates == [robbins_monro_rate(step, 2.0, 0.7) for step in range(1, 7)]


def test_each_gradient_step_has_the_gradient_of_its_own_run() -> None:
    grads = []
    for steps in (1, 3):
        settings = {"word_dropout": 0.0, "batch_norm": False, "stick_rate": STILL}
        t = trainer(corpus(), hyper=settings, batch_size=60, learning_rate=STILL, gradient_steps=steps)
        t.step(np.arange(60))
        grads.append(t.guide.claim("ell").free.grad.clone())
    assert float(grads[0].abs().max()) > 0
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-6, atol=1e-9)


def test_gradient_steps_hold_what_the_e_step_found(monkeypatch: pytest.MonkeyPatch) -> None:
    t = trainer(corpus())
    run, seen = t.guide.run, []

    def watched(*args: Any, options: RunOptions | None = None, **kwargs: Any) -> Any:
        found = run(*args, options=options, **kwargs)
        seen.append((options, found))
        return found

    monkeypatch.setattr(t.guide, "run", watched)
    t.step(np.arange(20))
    (_, solved), (options, _) = seen
    assert options.held["Z"] is solved.local["Z"]


def test_sticks_start_at_the_shares_of_the_clusters_and_places_around_their_mean() -> None:
    rng = np.random.default_rng(0)
    groups = np.kron(np.eye(3), np.ones(6)) + 1e-3
    sizes = (60, 30, 10)
    rows = np.concatenate([rng.multinomial(40, g / g.sum(), size=s) for g, s in zip(groups, sizes, strict=True)])
    t = trainer(rows, num_topics=3, batch_size=100)
    weights = stick_weights(t.guide.claim("V").value().detach())
    smooth = (torch.tensor(sizes) / 100 + 0.1 / 3) / 1.1
    torch.testing.assert_close(weights, smooth.to(weights), atol=1e-6, rtol=0)
    ell = t.guide.claim("ell").value().detach()
    torch.testing.assert_close(ell.norm(dim=1), torch.ones(3))
    assert float(ell.mean(0).norm()) < 0.5  # without their mean taken out, all three lie on one side


def test_batches_of_a_fit_are_weighted_by_their_share() -> None:
    x = torch.randn(50) * 2 + 1

    def model(x: Tensor, rows: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        with pyro.plate("data", 50, subsample=rows):
            pyro.sample("x", dist.Normal(mu, 1.0), obs=x)

    guide = ClosedFormGuide(model)
    options = FitOptions(epochs=1, batch_size=20, delay=1e12, decay=1.0, progress=False)
    result = fit(guide, Tensors(x), options=options)
    whole = float(guide.run(x, torch.arange(50)).bound())
    assert result.history[0]["bound"] == pytest.approx(whole, rel=1e-8)
    assert result.bound == pytest.approx(whole, rel=1e-8)


@pytest.mark.parametrize("prior", [dist.Normal(1.0, 2.0), dist.Cauchy(1.0, 2.0)], ids=["divergence", "drawn"])
def test_terms_of_open_sites_have_the_weight_of_their_statement(prior: Any) -> None:
    def terms(weight: float) -> Tensor:
        def model() -> None:
            with pyro.poutine.scale(scale=weight):
                pyro.sample("x", prior)

        torch.manual_seed(0)
        return ClosedFormGuide(model, {"x": MeanFieldNormal()}).run().terms()["x"]

    one = terms(1.0)
    assert float(one.detach().abs()) > 0.1
    torch.testing.assert_close(terms(2.5), 2.5 * one)


def test_a_point_on_the_unconstrained_scale_has_its_jacobian() -> None:
    def model() -> None:
        pyro.sample("x", dist.Gamma(3.0, 2.0))

    for unconstrained in (False, True):
        guide = ClosedFormGuide(model, {"x": Point(unconstrained)})
        value = torch.tensor(0.7)
        guide.plan()
        guide.claim("x").set(value)
        expected = dist.Gamma(3.0, 2.0).log_prob(value) + (value.log() if unconstrained else 0.0)
        torch.testing.assert_close(guide.run().terms()["x"].detach(), expected)


def test_a_point_is_not_kept_for_a_subsampled_plate() -> None:
    def model(rows: Tensor) -> None:
        with pyro.plate("data", 50, subsample=rows):
            pyro.sample("x", dist.Normal(0.0, 1.0))

    with pytest.raises(ValueError, match="subsampled plate"):
        ClosedFormGuide(model, {"x": Point()}).plan(torch.arange(5))


def test_the_e_step_is_made_in_evaluation_mode_and_the_gradients_in_training_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    t = trainer(corpus())
    modes, run = [], t.guide.run

    def watched(*args: Any, **kwargs: Any) -> Any:
        modes.append((t.model.training, t.guide.training))
        return run(*args, **kwargs)

    monkeypatch.setattr(t.guide, "run", watched)
    t.step(np.arange(20))
    assert modes == [(False, False), (True, True)]
    with evaluating(t.model, t.guide):
        assert not t.model.training
