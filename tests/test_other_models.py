"""Guide and ELBO know nothing of PRME: a plain LDA and a Gamma-Poisson factorisation with rules of their own."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO
from scipy import sparse
from torch.distributions import constraints

from pyro_prme import Batch
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.equations.expectations import expected_log, expected_log_rows
from pyro_prme.equations.updates import assignment_probabilities
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.kernels import LocalStep
from pyro_prme.rules import Assignment, DirichletTopics, Local, Rule, Words

K, D, N = 3, 12, 30


# latent Dirichlet allocation, with plain Pyro distributions


def lda(batch):
    with pyro.plate("topics", K):
        theta = pyro.sample("theta", dist.Dirichlet(torch.full((D,), 0.3)))
    with pyro.plate("documents", N, subsample=batch.documents):
        alpha = pyro.param("alpha", torch.tensor(0.7), constraint=constraints.positive)
        pi = pyro.sample("pi", dist.Dirichlet(alpha.expand(K)))
    with pyro.plate("words", batch.num_entries), poutine.scale(scale=batch.count * N / batch.size):
        C = pyro.sample("C", dist.Categorical(pi[batch.document]))
        pyro.sample("X", dist.Categorical(theta[C]), obs=batch.word)


class DirichletProportions(Rule):
    """q(pi_n) = Dir(alpha + sum of phi), by a fixed point with phi."""

    summary = "Dirichlet, closed form"
    moments = ("theta",)
    needs = ("C",)

    def refusal(self, name, prototype):
        for draw in prototype:
            if not torch.allclose(draw.site("C")["fn"].probs, draw.value(name)[draw.batch.document]):
                return f"the probabilities of C are not {name}."
        return None

    def posterior(self, name, prior, run):
        batch = run.batch
        with torch.no_grad():
            elog_theta = expected_log_rows(run.posterior("theta"), run.value("theta"), batch.words)
            a = prior.concentration + batch.length.unsqueeze(-1) / K
            for _ in range(300):
                elog = expected_log(dist.Dirichlet(a), a)
                logits = elog[batch.document] + elog_theta[batch.local_word]
                phi = assignment_probabilities(elog[batch.document], elog_theta[batch.local_word])
                weighted = batch.count.unsqueeze(-1) * phi
                counts = torch.zeros_like(a).index_add_(0, batch.document, weighted)
                a = prior.concentration + counts
            statistics = torch.zeros_like(elog_theta).index_add_(0, batch.local_word, weighted)
        zero = torch.zeros(batch.size)
        step = LocalStep(counts, a, a, zero, elog, logits.logsumexp(-1), statistics, zero)
        run.local[name] = Local(step, elog_theta)
        return dist.Dirichlet(a)


def lda_guide():
    return ClosedFormGuide(
        lda,
        {
            "pi": DirichletProportions(),
            "theta": DirichletTopics(loadings="pi"),
            "C": Assignment(loadings="pi"),
            "X": Words(loadings="pi"),
        },
    )


def lda_corpus(seed=0):
    rng = np.random.default_rng(seed)
    theta = np.kron(np.eye(K), np.ones(D // K)) / (D // K)
    return sparse.csr_matrix(np.stack([rng.multinomial(20, rng.dirichlet(np.full(K, 0.3)) @ theta) for _ in range(N)]))


def test_lda_has_its_plan_and_its_bound_is_the_elbo():
    batch = Batch.from_csr(lda_corpus())
    guide = lda_guide()
    assert list(guide.plan(batch).rules) == ["theta", "pi", "C", "X"]
    assert guide.plan(batch).undrawn == {"theta", "C"}
    for _ in range(3):
        guide.expectations(batch)
        guide.gather()
        guide.natural_step()
    analytic = ClosedForm_ELBO().loss(lda, guide, batch)
    with torch.no_grad():
        draws = torch.tensor([Trace_ELBO().loss(lda, guide, batch) for _ in range(300)])
    assert abs(draws.mean() - analytic) < 4 * draws.std() / 300**0.5


def test_lda_learns_its_topics_and_its_concentration_under_stock_svi():
    counts = lda_corpus()
    guide = lda_guide()
    svi = SVI(lda, guide, pyro.optim.Adam({"lr": 0.02}), ClosedForm_ELBO())
    losses = []
    for step in range(60):
        batch = Batch.from_csr(counts, np.arange(10) + 10 * (step % 3))
        losses.append(svi.step(batch))
        guide.gather()
        guide.natural_step((1 + step) ** -0.6)
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 100
    topics = guide.rules["theta"].topics()
    planted = torch.kron(torch.eye(K), torch.ones(D // K))
    cosine = torch.nn.functional.normalize(topics, dim=-1) @ torch.nn.functional.normalize(planted, dim=-1).T
    assert cosine.amax(0).min() > 0.9
    assert pyro.param("alpha").item() < 0.6, "documents were drawn with 0.3"


# Gamma-Poisson factorisation: no batch, no words, its own statistics


def gamma_poisson(X, rows):
    """X_nd ~ Poisson(sum_k Z_nk theta_kd)."""
    with pyro.plate("topics", K, dim=-1):
        theta = pyro.sample("theta", dist.Gamma(0.4, 1.0).expand([D]).to_event(1))
    rate = pyro.param("rate", torch.tensor(2.0), constraint=constraints.positive)
    with pyro.plate("documents", N, subsample=rows, dim=-2):
        with pyro.plate("factors", K, dim=-1):
            Z = pyro.sample("Z", dist.Gamma(torch.tensor(0.5), rate))
        pyro.sample("X", dist.Poisson((Z @ theta).unsqueeze(-2)).to_event(1), obs=X.unsqueeze(-2))


def shares(run):
    """E ln Z + E ln theta for every cell, (B, D, K), of the loadings before their update."""
    elog_theta = expected_log(run.posterior("theta"), run.value("theta"))  # (K, D)
    return run.local["elog"].unsqueeze(-2) + elog_theta.mT


class PoissonLoadings(Rule):
    """q(Z_nk) = Gamma(a + sum_d X_nd phi_ndk, b + sum_d E theta_kd)."""

    summary = "Gamma, closed form under a Poisson sum"
    moments = ("theta",)
    needs = ("X",)

    def refusal(self, name, prototype):
        for draw in prototype:
            expected = (draw.value(name) @ draw.value("theta")).unsqueeze(-2)
            if not torch.allclose(draw.site("X")["fn"].base_dist.rate, expected):
                return "the rate of X is not Z theta."
        return None

    def posterior(self, name, prior, run):
        X = run.args[0]
        with torch.no_grad():
            q = run.posterior("theta").base_dist
            rate = prior.rate + q.mean.sum(-1)  # (B, K)
            a = (prior.concentration + X.sum(-1, keepdim=True) / K).expand(rate.shape)
            for _ in range(100):
                run.local["elog"] = a.digamma() - rate.log()
                phi = shares(run).softmax(-1)  # (B, D, K)
                a = prior.concentration + (X.unsqueeze(-1) * phi).sum(-2)
        run.local["phi"] = phi
        return dist.Gamma(a, rate)

    def term(self, name, run, bound):
        prior, q = run.prior(name), run.posterior(name)
        elog = expected_log(q, run.value(name))
        c, rate = prior.concentration, prior.rate
        value = c * rate.log() - c.lgamma() + (c - 1) * elog - rate * q.mean + q.entropy()
        return run.scaled_sum(name, value)


class PoissonFactors(Rule):
    """q(theta_kd) = Gamma, moved by natural steps."""

    summary = "Gamma, natural step"
    needs = ("X",)

    def refusal(self, name, prototype):
        return None if prototype.children(name) == {"X"} else f"more than X depends on {name}."

    def setup(self, name, prototype):
        prior = prototype.site(name)["fn"].base_dist
        self.register_buffer("concentration", prior.concentration + torch.rand(K, D))
        self.register_buffer("rate", prior.rate.clone())
        self.target = [prior.concentration.clone(), prior.rate.clone()]
        self.prior = [prior.concentration, prior.rate]

    def posterior(self, name, prior, run):
        return dist.Gamma(self.concentration, self.rate).to_event(1)

    def placeholder(self, posterior):
        return torch.ones(()).expand(K, D)

    def gather(self, name, run, scale=None):
        X, weight = run.args[0], run.scale("Z") if scale is None else scale
        self.target[0] = self.target[0] + weight * (X.unsqueeze(-1) * run.local["phi"]).sum(0).mT
        self.target[1] = self.target[1] + weight * run.posterior("Z").mean.sum(0).unsqueeze(-1)

    def natural_step(self, rate):
        self.concentration.lerp_(self.target[0], rate)
        self.rate.lerp_(self.target[1], rate)
        self.target = list(self.prior)

    def term(self, name, run, bound):
        prior, q = run.prior(name).base_dist, run.posterior(name).base_dist
        return run.scaled_sum(name, -torch.distributions.kl_divergence(q, prior).sum(-1))


class PoissonSum(Rule):
    """The bound on E ln Poisson(X | Z theta) by the shares of the topics."""

    summary = "bounded by the topics' shares"
    observed = True
    moments = ("Z", "theta")

    def refusal(self, name, prototype):
        return None

    def term(self, name, run, bound):
        X, q, t = run.args[0], run.posterior("Z"), run.posterior("theta").base_dist
        phi = run.local["phi"]
        elog = expected_log(q, X).unsqueeze(-2) + expected_log(t, X).mT  # (B, D, K)
        value = X * (phi * (elog - phi.log())).sum(-1) - q.mean @ t.mean - (X + 1).lgamma()
        return run.scaled_sum(name, value.sum(-1, keepdim=True))


def poisson_guide():
    return ClosedFormGuide(gamma_poisson, {"theta": PoissonFactors(), "Z": PoissonLoadings(), "X": PoissonSum()})


def poisson_data():
    rng = torch.Generator().manual_seed(0)
    theta = torch.kron(torch.eye(K), torch.ones(D // K)) * 2
    Z = torch.rand(N, K, generator=rng).square() * 3
    return torch.poisson(Z @ theta, generator=rng)


def test_gamma_poisson_climbs_its_bound_and_stays_below_the_elbo():
    X, rows = poisson_data(), torch.arange(N)
    guide = poisson_guide()
    assert guide.plan(X, rows).undrawn == {"theta"}
    bounds = []
    for _ in range(12):
        bounds.append(ClosedForm_ELBO().report(guide, X, rows).total)
        guide.gather()
        guide.natural_step()
    assert (torch.tensor(bounds).diff() > -1e-8).all()
    assert bounds[-1] > bounds[0] + 50
    with torch.no_grad():
        draws = torch.tensor([-Trace_ELBO().loss(gamma_poisson, guide, X, rows) for _ in range(200)])
    bound = ClosedForm_ELBO().report(guide, X, rows).total
    assert bound < draws.mean() + 4 * draws.std() / 200**0.5


def test_gamma_poisson_subsamples_without_bias():
    X = poisson_data()
    guide = poisson_guide()
    full = ClosedForm_ELBO().report(guide, X, torch.arange(N))
    parts = [ClosedForm_ELBO().report(guide, X[i : i + 10], torch.arange(i, i + 10)) for i in (0, 10, 20)]
    for name, term in full.terms.items():
        assert np.mean([part.terms[name] for part in parts]) == pytest.approx(term, rel=1e-6), name


def test_gamma_poisson_learns_a_parameter_under_stock_svi():
    X, rows = poisson_data(), torch.arange(N)
    guide = poisson_guide()
    svi = SVI(gamma_poisson, guide, pyro.optim.Adam({"lr": 0.05}), ClosedForm_ELBO())
    losses = []
    for _ in range(40):
        losses.append(svi.step(X, rows))
        guide.gather()
        guide.natural_step()
    assert losses[-1] < losses[0] - 50
    assert abs(pyro.param("rate").item() - 2.0) > 0.2


def test_a_changed_model_is_refused_by_the_users_own_rule():
    def softened(X, rows):
        with pyro.plate("topics", K, dim=-1):
            theta = pyro.sample("theta", dist.Gamma(0.4, 1.0).expand([D]).to_event(1))
        with pyro.plate("documents", N, subsample=rows, dim=-2):
            with pyro.plate("factors", K, dim=-1):
                Z = pyro.sample("Z", dist.Gamma(torch.tensor(0.5), 1.0))
            pyro.sample("X", dist.Poisson((Z @ theta).sqrt().unsqueeze(-2)).to_event(1), obs=X.unsqueeze(-2))

    guide = ClosedFormGuide(softened, {"Z": PoissonLoadings()})
    with pytest.raises(ValueError, match="rule asked for at site Z does not hold: the rate of X is not Z theta"):
        guide.plan(poisson_data(), torch.arange(N))
