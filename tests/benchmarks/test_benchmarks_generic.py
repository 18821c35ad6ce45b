"""What the benchmark against generic Pyro compares: the same model, the same bound, the same gradients."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyro
import pytest
import torch

import pyro_prme as prme

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import corpora
import generic
import training_step

TOY = generic.Sizes(12, 40, 4, 15)


@pytest.fixture(autouse=True)
def _local_params() -> Iterator[None]:
    with pyro.settings.context(module_local_params=True):
        yield


@pytest.mark.parametrize("kind", ["hdp", "prme"])
def test_both_generic_elbos_are_the_same_function_of_the_draws(kind):
    pair = generic.Pair(kind, TOY)
    values = []
    for name in training_step.ELBOS:
        objective, _, _ = pair.mean_field(name)
        pyro.set_rng_seed(3)
        values.append(float(objective(pair.tokens).detach()))
    assert values[0] == pytest.approx(values[1], rel=1e-10)


@pytest.mark.parametrize("kind", ["hdp", "prme"])
def test_summing_topics_out_raises_our_bound(kind):
    """The bound that all states are scored with is the ELBO: it lies above ours, which has q(C), and not far."""
    pair = generic.Pair(kind, TOY)
    pair.trainer.fit(3)
    guide = generic.MeanField(pair.model, pair.guide, pair.tokens)
    summed = generic.summed_bound(pair.model, guide, pair.tokens, particles=400)
    with torch.no_grad():
        ours = float(pair.guide.run(pair.tokens, options=prme.RunOptions(bound="quadrature")).bound().detach())
    assert ours < summed < ours + 0.3 * abs(ours)


def test_a_marginal_word_is_the_sum_over_topics():
    proportions, theta = torch.tensor([[0.25, 0.75]]), torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.2, 0.6]])
    word = generic.MarginalWord(proportions, theta, torch.tensor([0, 0]))
    expected = torch.tensor([0.25 * 0.5 + 0.75 * 0.2, 0.75 * 0.6]).log()
    torch.testing.assert_close(word.log_prob(torch.tensor([1, 2])), expected)


def test_gradient_noise_of_a_known_gradient():
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    draws = iter([-1.0, 0.0, 1.0])
    found, mean = generic.gradient_noise(lambda: (x * torch.tensor([3.0 + next(draws), 4.0])).sum(), [x], 3)
    torch.testing.assert_close(mean, torch.tensor([3.0, 4.0]))
    assert found == pytest.approx((5.0, 1 / 5, 0.0))


@pytest.mark.parametrize("kind", ["hdp", "prme"])
def test_gradients_of_draws_scatter_about_ours(kind):
    rows = generic.noise(kind, TOY, training_step.ELBOS, "float64", epochs=2, draws=200)
    assert {row["in"] for row in rows} == ({"V"} if kind == "hdp" else {"V", "decoder"})
    for row in rows:
        if row["gradient"] == "ours":
            assert row["deviation"] == 0
        else:
            assert row["deviation"] > 0.01
            assert row["distance"] < 4 * row["deviation"] / row["draws"] ** 0.5


@pytest.mark.usefixtures("float32")
def test_fits_of_both_raise_the_bound():
    fit = generic.generic_fit("hdp", "TraceEnum_ELBO", TOY, 0.5, 0.1)
    assert fit["tokens"] == corpora.natural_corpus(*TOY[:2], TOY.tokens).sum()
    assert training_step.best(fit) > fit["curve"][0]["bound"]
    ours = generic.our_fit("hdp", TOY, 0.5, fit["curve"][0]["bound"])
    assert set(ours["milliseconds"]) == {"entries", "tokens"}
    assert ours["curve"][-1]["bound"] > fit["curve"][0]["bound"]
    assert all(point["bound"] < fit["curve"][0]["bound"] for point in ours["curve"][:-1])
