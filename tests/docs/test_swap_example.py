"""README's swap: another likelihood by a plain override, fitted, scored and asked for its topics."""

import numpy as np
import pyro
import pyro.distributions as dist
import torch

import pyro_prme as prme
from pyro_prme.models.count_rows import PoissonPRME
from pyro_prme.models.simulation import simulate


def counts_and_words():
    """Rows of counts with four planted topics, on three of twelve words each."""
    torch.manual_seed(0)
    truth = PoissonPRME(4, 12, 400, beta=20.0, h_dim=3, ell_dim=2)
    topics = torch.kron(torch.eye(4), torch.full((1, 3), 1 / 3))
    X, _ = simulate(truth, 400, theta=topics, V=[1 / 4, 1 / 3, 1 / 2])
    return X.numpy(), [f"word{d}" for d in range(12)]


def test_the_swap_of_a_likelihood_in_the_readme(capsys):
    counts, words = counts_and_words()

    class CountedRows(prme.FactorModel, prme.PRME):
        def sample_rows(self, Z, theta, noise, observed):
            rate = (Z @ theta).unsqueeze(-2)  # rows, 1, words
            return pyro.sample("X", dist.Poisson(rate).to_event(1), obs=observed)

    train, new = prme.Rows(counts[:300]), prme.Rows(counts[300:])
    model = CountedRows(num_topics=4, vocab_size=12, num_documents=300)
    guide = prme.PRMEGuide(model)
    print(guide.plan(*train.batch()))  # theta and Z have closed forms, found from the program
    trainer = prme.Trainer(guide, train, prme.TrainOptions(learning_rate=0.01))
    before = prme.held_out_density(guide, new, draws=20)
    trainer.fit(20)
    after = prme.held_out_density(guide, new, draws=20)
    posterior = prme.Posterior(guide, vocabulary=words)
    print(posterior.top_words(3))
    loadings = posterior.loadings(new)

    printed = capsys.readouterr().out
    assert "closed form, Dirichlet, natural steps (compiled)" in printed
    assert "closed form, Gamma, for each batch (compiled)" in printed
    assert after > before + 1
    blocks = {tuple(sorted(row)) for row in posterior.top_words(3).values.tolist()}
    assert blocks == {tuple(sorted(f"word{d}" for d in range(3 * k, 3 * k + 3))) for k in range(4)}
    assert loadings.shape == (100, 4)
    assert np.corrcoef(loadings.values.sum(1), counts[300:].sum(1))[0, 1] > 0.95, "they say how large a row is"
