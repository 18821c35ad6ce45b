"""The closed forms are stationary points of the bound (autograd, float64)."""

import torch

from pyro_prme import HDP, Batch
from pyro_prme.equations.bounds import (
    assignment_entropy,
    dirichlet_entropy,
    elog_dirichlet,
    elog_gamma_loadings,
    elog_sum_epsilon,
    gamma_entropy,
)
from pyro_prme.equations.updates import (
    assignment_probabilities,
    dirichlet_update,
    loadings_update,
    natural_step,
    robbins_monro_rate,
    solve_epsilon,
)
from pyro_prme.inference.topic_guide import PRMEGuide

B, K, D, E = 3, 4, 6, 11


def gradient(value, *points):
    return max(g.abs().max() for g in torch.autograd.grad(value, points))


def setting():
    """Arbitrary prior shapes, random function, documents and phi."""
    c = torch.rand(K) + 0.1
    mean_f = torch.randn(B, K)
    exp_neg_f = (-mean_f + 0.2).exp()
    phi = torch.rand(E, K).softmax(-1)
    document = torch.tensor([0] * 5 + [1] * 5 + [2])
    counts = torch.zeros(B, K).index_add(0, document, phi)
    length = counts.sum(-1)
    a = c + counts
    epsilon = solve_epsilon(a, exp_neg_f, length, c.sum().expand(B))
    return c, mean_f, exp_neg_f, phi, document, counts, length, epsilon


def z_bound(a, rate, epsilon, c, mean_f, exp_neg_f, counts, length):
    """All that holds Z: its prior, its entropy, the assignments, and the epsilon bound."""
    elog, mean = a.digamma() - rate.log(), a / rate
    prior = elog_gamma_loadings(c, mean_f, exp_neg_f, mean, elog)
    words = (counts * elog).sum() - (length * elog_sum_epsilon(mean, epsilon)).sum()
    return prior.sum() + gamma_entropy(a, rate).sum() + words


def test_q_of_Z_and_the_solved_epsilon_are_jointly_stationary():
    c, mean_f, exp_neg_f, _, _, counts, length, epsilon = setting()
    a, rate = loadings_update(c, counts, exp_neg_f, length, epsilon)
    points = [x.clone().requires_grad_() for x in (a, rate, epsilon)]
    assert gradient(z_bound(*points, c, mean_f, exp_neg_f, counts, length), *points) < 1e-8


def test_the_stationarity_test_notices_a_wrong_rate():
    c, mean_f, exp_neg_f, _, _, counts, length, epsilon = setting()
    a, rate = loadings_update(c, counts, exp_neg_f, length, epsilon)
    points = [x.clone().requires_grad_() for x in (a, rate * 1.001, epsilon)]
    assert gradient(z_bound(*points, c, mean_f, exp_neg_f, counts, length), *points) > 1e-5


def test_the_solved_epsilon_is_the_limit_of_the_papers_recomputation():
    c, _, exp_neg_f, _, _, counts, length, epsilon = setting()
    recomputed = torch.full((B,), 0.7)
    for _ in range(20_000):
        a, rate = loadings_update(c, counts, exp_neg_f, length, recomputed)
        recomputed = (a / rate).sum(-1)
    torch.testing.assert_close(recomputed, epsilon, rtol=1e-9, atol=0)


def test_epsilon_is_beta_when_f_is_zero_and_the_prior_mean_for_an_empty_document():
    c, _, exp_neg_f, _, _, counts, length, _ = setting()
    a = c + counts
    torch.testing.assert_close(solve_epsilon(a, torch.ones(B, K), length, c.sum().expand(B)), c.sum().expand(B))
    empty = solve_epsilon(c.expand(B, K), exp_neg_f, torch.zeros(B), c.sum().expand(B))
    torch.testing.assert_close(empty, (c / exp_neg_f).sum(-1))


def test_q_of_C_is_stationary_on_the_simplex():
    elog_loadings, elog_theta = torch.randn(E, K), torch.randn(E, K)
    phi = assignment_probabilities(elog_loadings, elog_theta)
    free = phi.log().requires_grad_()  # phi = softmax(free) stays on the simplex
    value = free.softmax(-1)
    bound = (value * (elog_loadings + elog_theta)).sum() + assignment_entropy(value).sum()
    assert gradient(bound, free) < 1e-8


def theta_bound(gamma, prior, statistics):
    elog = gamma.digamma() - gamma.sum(-1, keepdim=True).digamma()
    return elog_dirichlet(prior, elog).sum() + dirichlet_entropy(gamma, elog).sum() + (statistics * elog).sum()


def test_gamma_is_stationary():
    prior, statistics = torch.full((K, D), 0.2), torch.rand(K, D) * 7
    gamma = dirichlet_update(prior, statistics).requires_grad_()
    assert gradient(theta_bound(gamma, prior, statistics), gamma) < 1e-8


def test_the_natural_step_is_the_fisher_solve():
    prior, statistics, gamma = torch.full((K, D), 0.2), torch.rand(K, D) * 7, torch.rand(K, D) * 5 + 0.3
    gamma.requires_grad_()
    (gradient_,) = torch.autograd.grad(theta_bound(gamma, prior, statistics), gamma)
    moved = []
    for k in range(K):
        fisher = torch.diag(torch.polygamma(1, gamma[k])) - torch.polygamma(1, gamma[k].sum())
        moved.append(gamma[k] + 0.3 * torch.linalg.solve(fisher, gradient_[k]))
    step = natural_step(gamma, dirichlet_update(prior, statistics), 0.3)
    torch.testing.assert_close(step, torch.stack(moved))


def test_robbins_monro_rates():
    assert robbins_monro_rate(0, delay=100.0, decay=0.75) == 100**-0.75
    rates = [robbins_monro_rate(t, delay=1.0, decay=0.6) for t in range(10_000)]
    assert sum(r**2 for r in rates[5000:]) < sum(rates[5000:])


def test_the_sums_of_gamma_are_those_of_all_words():
    """More words than are summed at a time."""
    guide = PRMEGuide(HDP(3, 9000, 2))
    guide.plan(Batch.from_tokens([[0, 1], [8999]]))
    topics = guide.topics
    topics.set(torch.rand(9000, 3))
    torch.testing.assert_close(topics.total, topics.gamma.sum(0))
    topics.natural_step(0.5)
    torch.testing.assert_close(topics.total, topics.gamma.sum(0))


def test_step_sizes_fall_as_in_the_paper_and_its_constants_are_the_defaults():
    assert robbins_monro_rate(0) == 100.0**-0.75
    assert robbins_monro_rate(400) == 500.0**-0.75
    assert robbins_monro_rate(9, 1.0, 0.6) == 10.0**-0.6


def test_epsilon_is_solved_where_newton_needs_many_steps():
    """From 0 the steps double at first: a root of 1e12 takes 40."""
    a, e, length = torch.tensor([[5.0, 1000.0]]), torch.tensor([[1e-12, 1.0]]), torch.tensor([1000.0])
    prior_total = torch.tensor([1002.0])
    epsilon = solve_epsilon(a, e, length, prior_total)
    found = (a * e * epsilon / (e * epsilon + length)).sum(-1)
    torch.testing.assert_close(found, prior_total, rtol=1e-12, atol=0)
