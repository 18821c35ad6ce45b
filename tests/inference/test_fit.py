"""`fit`: where it starts and ends, batches, several starts, interruptions; and `SVI` with a closed-form guide."""

from __future__ import annotations

import itertools
from typing import Any

import pyro
import pytest
import torch
from pyro import distributions as dist
from pyro.infer import SVI, Trace_ELBO, TraceGraph_ELBO, TraceMeanField_ELBO
from torch import Tensor

from pyro_prme.conjugacy import Ascent, Factors, find_structure
from pyro_prme.inference import ClosedForm_ELBO, ClosedFormGuide, FitOptions, Tensors, fit
from pyro_prme.inference.rules import Conjugate
from tests.conjugacy import models

X = torch.tensor([0.3, -1.2, 2.0, 0.7, 1.1, 5.0], dtype=torch.float64)
QUIET = FitOptions(progress=False)


def half_open(x: Tensor) -> None:
    s = pyro.sample("s", dist.LogNormal(0.0, 1.0))
    mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Normal(mu, s), obs=x)


def clusters(size: int = 200) -> tuple[Tensor, Tensor]:
    centres = torch.tensor([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])
    return centres[torch.arange(size) % 4] + torch.randn(size, 2), centres


def test_coordinate_ascent_ends_where_the_engine_does() -> None:
    guide = ClosedFormGuide(models.normal_gamma)
    seen: list[dict[str, Any]] = []
    result = fit(guide, X, options=QUIET, callback=lambda record: seen.append(dict(record)))
    ascent = Ascent(find_structure(models.normal_gamma, (X,)))
    for _ in range(100):
        ascent.sweep()
    assert result.converged
    assert not result.interrupted
    assert result.bound == pytest.approx(float(ascent.bound()), rel=1e-9)
    assert float(guide.posterior("tau").mean) == pytest.approx(float(ascent.posterior("tau").mean), rel=1e-5)
    assert [record["bound"] for record in seen] == [record["bound"] for record in result.history]
    assert [record["epoch"] for record in result.history] == list(range(1, len(seen) + 1))
    bounds = [record["bound"] for record in result.history]
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(bounds))


def test_random_state_is_left_alone_and_the_seed_decides() -> None:
    before = torch.get_rng_state()
    x, _ = clusters(40)
    bounds: dict[int, list[float]] = {}
    for seed in (0, 1, 0):
        torch.manual_seed(7 + seed)
        state = torch.get_rng_state()
        result = fit(ClosedFormGuide(models.diagonal_mixture), x, 4, options=FitOptions(seed=seed, progress=False))
        bounds.setdefault(seed, []).append(result.history[0]["bound"])
        assert torch.equal(state, torch.get_rng_state())
    assert bounds[0][0] == bounds[0][1]
    assert bounds[0][0] != bounds[1][0]
    torch.set_rng_state(before)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_mixture_does_not_stay_stuck(seed: int) -> None:
    x, centres = clusters()
    guide = ClosedFormGuide(models.diagonal_mixture)
    fit(guide, x, 4, options=FitOptions(seed=seed, progress=False))
    distance = torch.cdist(centres, guide.posterior("mu").mean)
    assert float(distance.min(-1).values.max()) < 0.5


def test_the_best_of_several_starts_is_kept() -> None:
    x = torch.bernoulli(torch.rand(3, 8)[torch.randint(0, 3, (60,))])
    single = [
        fit(ClosedFormGuide(models.bernoulli_mixture), x, 3, options=FitOptions(seed=seed, progress=False)).bound
        for seed in range(5)
    ]
    guide = ClosedFormGuide(models.bernoulli_mixture)
    best = fit(guide, x, 3, options=FitOptions(starts=5, progress=False))
    assert max(single) > min(single) + 1e-3
    assert best.bound == pytest.approx(max(single), abs=1e-9)
    assert float(guide.run(x, 3).bound()) == pytest.approx(best.bound, abs=1e-6)


def test_an_interruption_keeps_what_was_reached() -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    guide, other = ClosedFormGuide(models.normal_gamma), ClosedFormGuide(models.normal_gamma)
    result = fit(guide, X, options=QUIET, callback=stop)
    reached = fit(other, X, options=FitOptions(epochs=3, tolerance=0.0, progress=False))
    assert result.interrupted
    assert not result.converged
    assert result.bound == reached.bound
    assert torch.equal(guide.posterior("mu").mean, other.posterior("mu").mean)


def test_a_bound_that_falls_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Factors.target

    def wrong(self: Factors, name: str) -> dict[str, Tensor]:
        new = right(self, name)
        grown = getattr(self, "grown", 1.0)
        self.grown = 2 * grown  # type: ignore[attr-defined]
        return {key: part * grown for key, part in new.items()}

    monkeypatch.setattr(Factors, "target", wrong)
    with pytest.raises(ValueError, match=r"The bound fell from .* in coordinate ascent"):
        fit(ClosedFormGuide(models.normal_gamma), X, options=QUIET)


def test_gradients_move_what_has_no_closed_form() -> None:
    guide = ClosedFormGuide(half_open)
    before = fit(guide, 3 * X, options=FitOptions(epochs=1, progress=False)).bound
    result = fit(guide, 3 * X, options=FitOptions(epochs=200, learning_rate=0.05, progress=False))
    plan = guide.plan()
    assert (plan.closed, plan.open) == (("mu",), ("s",))
    assert result.bound > before + 1
    assert float(guide.posterior("s").sample((400,)).mean()) == pytest.approx(float(3 * X.std()), rel=0.4)


def test_batches_come_near_the_whole() -> None:
    x = torch.randn(400) * 2 + 1

    def model(x: Tensor, rows: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
        with pyro.plate("data", 400, subsample=rows):
            u = pyro.sample("u", dist.Normal(mu, 1.0))
            pyro.sample("x", dist.Normal(u, tau.rsqrt()), obs=x)

    apart = (Conjugate(together=False),)  # of a batch's members and the rest, as it must be in batches
    whole, parts = ClosedFormGuide(model, candidates=apart), ClosedFormGuide(model)
    best = fit(whole, Tensors(x), options=QUIET)
    found = fit(parts, Tensors(x), options=FitOptions(epochs=30, batch_size=50, progress=False))
    assert "for each batch" in parts.plan()["u"].update
    assert found.bound == pytest.approx(best.bound, rel=0.01)
    for name in ("mu", "tau"):
        ours, theirs = parts.posterior(name), whole.posterior(name)
        assert float(ours.mean) == pytest.approx(float(theirs.mean), rel=0.1)
        assert float(ours.variance) == pytest.approx(float(theirs.variance), rel=0.2)


@pytest.mark.parametrize("loss", [Trace_ELBO, TraceMeanField_ELBO, TraceGraph_ELBO])
def test_stock_losses_say_what_to_call(loss: type) -> None:
    svi = SVI(models.normal_gamma, ClosedFormGuide(models.normal_gamma), pyro.optim.Adam({"lr": 0.01}), loss())
    with pytest.raises(ValueError, match=r"This loss does not move closed-form sites: call pyro_prme\.fit"):
        svi.step(X)


def test_svi_with_its_own_loss_takes_natural_steps() -> None:
    guide = ClosedFormGuide(models.normal_gamma)
    svi = SVI(models.normal_gamma, guide, pyro.optim.Adam({"lr": 0.01}), ClosedForm_ELBO())
    losses = [svi.step(X) for _ in range(40)]
    best = fit(ClosedFormGuide(models.normal_gamma), X, options=QUIET)
    assert losses[0] > losses[-1]
    assert -losses[-1] == pytest.approx(best.bound, rel=1e-9)
    before = guide.posterior("mu").mean
    assert -svi.evaluate_loss(X) == pytest.approx(best.bound, rel=1e-9)
    assert torch.equal(guide.posterior("mu").mean, before)


def test_svi_moves_open_sites_too() -> None:
    guide, x = ClosedFormGuide(half_open), 5 * X
    svi = SVI(half_open, guide, pyro.optim.Adam({"lr": 0.05}), ClosedForm_ELBO())
    losses = torch.tensor([svi.step(x) for _ in range(150)])
    assert float(losses[-30:].mean()) < float(losses[:5].mean()) - 1
    assert float(guide.posterior("s").sample((400,)).mean()) == pytest.approx(float(x.std()), rel=0.4)


def test_the_rate_of_natural_steps_is_a_number_or_a_function() -> None:
    asked: list[int] = []

    def rate(step: int) -> float:
        asked.append(step)
        return 0.0

    guide = ClosedFormGuide(models.normal_gamma)
    guide.plan(X)
    before = guide.posterior("mu").mean
    svi = SVI(models.normal_gamma, guide, pyro.optim.Adam({"lr": 0.01}), ClosedForm_ELBO(rate))
    svi.step(X), svi.step(X)
    assert asked == [1, 2]
    torch.testing.assert_close(guide.posterior("mu").mean, before)
    with pytest.raises(ValueError, match="ClosedForm_ELBO needs a ClosedFormGuide, and this guide is function"):
        SVI(half_open, lambda x: None, pyro.optim.Adam({"lr": 0.05}), ClosedForm_ELBO()).step(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs is 0: it must be a whole number of at least 1"),
        ({"starts": 1.5}, "starts is 1.5"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"tolerance": -1.0}, "tolerance is -1.0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"decay": 0.4}, "decay is 0.4: it must be above 0.5"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FitOptions(**options)


def test_wrong_guides() -> None:
    with pytest.raises(ValueError, match="The guide is a function: give a ClosedFormGuide"):
        fit(half_open, X)  # type: ignore[arg-type]


def test_topics_of_a_users_own_model_start_from_clusters_that_the_seed_decides() -> None:
    topics = torch.zeros(4, 4, 4)
    for i in range(4):
        topics[i, i] = 0.25
    words = dist.Categorical(dist.Dirichlet(torch.full((4,), 0.2)).sample((60,)) @ topics.flatten(1)).sample((30,)).T
    args = words.flatten(), torch.arange(60).repeat_interleave(30), 60, 4, 16
    starts = []
    for seed in (0, 1, 1):
        guide = ClosedFormGuide(models.lda)
        guide.plan(*args)
        guide.restart(seed)
        starts.append(guide.posterior("phi").mean)
    assert not torch.equal(starts[0], starts[1])
    assert torch.equal(starts[1], starts[2])
    guide = ClosedFormGuide(models.lda)
    fit(guide, *args, options=FitOptions(starts=2, tolerance=1e-6, progress=False))
    found = guide.posterior("phi").mean.reshape(4, 16)
    assert float(torch.cdist(topics.flatten(1), found, p=1).min(-1).values.max()) < 0.2
