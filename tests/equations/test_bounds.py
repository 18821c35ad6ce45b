"""Every term of the objective against torch's densities, entropies and draws."""

import copy

import pytest
import torch
from torch.distributions import Categorical, Dirichlet, Gamma

from pyro_prme.equations import bounds
from pyro_prme.equations.expectations import expected, expected_exp_neg, expected_log, expected_log_rows
from pyro_prme.equations.updates import loadings_update, solve_epsilon
from pyro_prme.kernels.gamma import DigammaRows

B, K, D = 3, 4, 6
DRAWS = 200_000


def close_to_draws(value, draws):
    """Within four standard errors of the draws' mean."""
    mean, error = draws.mean(0), draws.std(0) / len(draws) ** 0.5
    assert ((value - mean).abs() < 4 * error).all(), (value - mean) / error


def test_dirichlet_terms():
    prior, gamma = torch.full((K, D), 0.7), torch.rand(K, D) * 4 + 0.5
    q = Dirichlet(gamma)
    elog = expected_log(q, gamma)
    close_to_draws(bounds.elog_dirichlet(prior, elog), Dirichlet(prior).log_prob(q.sample((DRAWS,))))
    torch.testing.assert_close(bounds.dirichlet_entropy(gamma, elog), q.entropy())
    torch.testing.assert_close(expected_log_rows(q, gamma, torch.tensor([4, 1])), elog.mT[[4, 1]])


def test_kept_digammas_are_those_of_the_table_as_it_is():
    table, words, kept = torch.rand(D, K) + 0.5, torch.tensor([0, 3, 5]), DigammaRows()
    kept(table, words)
    copied = copy.deepcopy(kept)
    for change in (lambda: None, lambda: table.add_(1.0), lambda: table[3].fill_(2.0)):
        change()
        for rows in (words, torch.arange(D)):
            torch.testing.assert_close(kept(table, rows), torch.digamma(table[rows]))
            torch.testing.assert_close(copied(table + 1, rows), torch.digamma(table + 1)[rows])


@pytest.mark.parametrize("prior", [torch.tensor(0.7).expand(K, D), torch.rand(D).expand(K, D), torch.rand(K, D)])
def test_the_topics_term_from_word_major_tables_is_the_sum_of_the_two(prior, monkeypatch):
    monkeypatch.setattr(bounds, "_BLOCK", 4)  # two blocks, one of them short
    prior, gamma = prior.double(), torch.rand(K, D) * 4 + 0.5
    elog = expected_log(Dirichlet(gamma), gamma)
    expected_sum = bounds.elog_dirichlet(prior, elog) + bounds.dirichlet_entropy(gamma, elog)
    torch.testing.assert_close(bounds.dirichlet_term(prior.mT, gamma.mT), expected_sum.double())


def test_loadings_terms_with_a_random_scale():
    c, mean_f, scale_f = torch.rand(K) + 0.5, torch.randn(B, K), torch.rand(B, K)
    q, f = Gamma(torch.rand(B, K) * 3 + 1, torch.rand(B, K) + 0.5), torch.distributions.Normal(mean_f, scale_f)
    value = bounds.elog_gamma_loadings(
        c, expected(f, mean_f), expected_exp_neg(f, mean_f), expected(q, mean_f), expected_log(q, mean_f)
    )
    close_to_draws(value, Gamma(c, (-f.sample((DRAWS,))).exp()).log_prob(q.sample((DRAWS,))))
    torch.testing.assert_close(bounds.gamma_entropy(q.concentration, q.rate), q.entropy())


def test_assignment_entropy():
    phi = torch.rand(7, K).softmax(-1)
    torch.testing.assert_close(bounds.assignment_entropy(phi), Categorical(phi).entropy())
    assert bounds.assignment_entropy(torch.tensor([[1.0, 0.0]])) == 0


def test_quadrature_has_the_known_law_of_equal_rates():
    total = torch.tensor([0.02, 0.5, 5.0, 300.0, 1e5])
    exact = total.digamma() - torch.tensor(3.7).log()
    value = bounds.elog_sum_quadrature((total / 7).unsqueeze(-1).expand(5, 7), torch.full((5, 7), 3.7))
    torch.testing.assert_close(value, exact, rtol=0, atol=1e-10)


def test_quadrature_has_the_gradient_of_equal_rates():
    total, rate = torch.tensor([0.5, 5.0, 300.0]), torch.full((3, 7), 3.7, requires_grad=True)
    a = (total / 7).unsqueeze(-1).repeat(1, 7).requires_grad_()
    bounds.elog_sum_quadrature(a, rate).sum().backward()
    torch.testing.assert_close(a.grad, torch.polygamma(1, total).unsqueeze(-1).expand(3, 7), rtol=1e-9, atol=0)
    torch.testing.assert_close(rate.grad, torch.full((3, 7), -1 / (7 * 3.7)), rtol=1e-9, atol=0)


def test_quadrature_agrees_with_particles_and_the_epsilon_bound_is_above():
    a, rate = torch.rand(B, K) * 3, torch.rand(B, K) * 9 + 0.01
    exact = bounds.elog_sum_quadrature(a, rate)
    close_to_draws(exact, Gamma(a, rate).sample((DRAWS,)).sum(-1).log())
    assert (exact - bounds.elog_sum_particles(a, rate, DRAWS)).abs().max() < 0.02
    for epsilon in (torch.full((B,), 0.3), (a / rate).sum(-1)):
        assert (bounds.elog_sum_epsilon(a / rate, epsilon) > exact).all()


@pytest.mark.parametrize("moved", [False, True])
def test_profiled_and_plain_bounds_agree_at_the_current_q_of_Z(moved):
    """Value and gradients in f and p; elsewhere the profiled bound is above the plain one."""
    logits, mean_f = torch.randn(K, requires_grad=True), torch.randn(B, K, requires_grad=True)
    variance, counts = torch.rand(B, K, requires_grad=True), torch.rand(B, K) * 5
    length = counts.sum(-1)

    def moments():
        return 5 * logits.softmax(-1), mean_f, (-mean_f + variance / 2).exp()

    with torch.no_grad():
        c, _, exp_neg_f = moments()
        epsilon = solve_epsilon(c + counts, exp_neg_f, length, c.sum().expand(B))
        a, rate = loadings_update(c, counts, exp_neg_f, length, epsilon)
        slope = length / epsilon
        if moved:
            mean_f += 0.5
    c, mean, exp_neg_f = moments()
    elog = a.digamma() - rate.log()
    coupling = counts * elog - slope.unsqueeze(-1) * a / rate
    plain = bounds.elog_gamma_loadings(c, mean, exp_neg_f, a / rate, elog) + bounds.gamma_entropy(a, rate) + coupling
    profiled = bounds.profiled_loadings(c, counts, mean, exp_neg_f, slope)
    if moved:
        assert (profiled > plain).all()
        return
    torch.testing.assert_close(profiled, plain, rtol=1e-12, atol=1e-12)
    points = (logits, mean_f, variance)
    gradients = [torch.autograd.grad(value.sum(), points, retain_graph=True) for value in (profiled, plain)]
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)
