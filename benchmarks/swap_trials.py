"""How a swapped model and the unswapped one are fitted to the same data and scored, for `swaps.py`."""

import math
from collections.abc import Callable
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor, nn

import pyro_prme as prme
from pyro_prme.models.covariates import CovariatePRME
from pyro_prme.models.networks.layers import LinearDecoder
from pyro_prme.models.prme import EmbeddedTopics

FACTORS, COLUMNS, ROWS = 4, 12, 100
TOPICS, WORDS, TRAIN, TEST = 8, 80, 300, 150

Make = Callable[..., Any]
Scores = tuple[float, float]


def rows(
    truth: Make, swapped: Make, unswapped: Make, seed: int, *, epochs: int = 60, starts: int = 3, **given: Tensor
) -> Scores:
    """Mean log density of a new row under two likelihoods, each the best of as many starts by its training bound."""
    torch.manual_seed(seed)
    X, _ = prme.simulate(truth(2 * ROWS), 2 * ROWS, seed, **given)
    train, new = prme.Rows(X[:ROWS]), prme.Rows(X[ROWS:])
    scores = []
    for make in (swapped, unswapped):
        fits = []
        for start in range(starts):
            torch.manual_seed(start)
            guide = prme.PRMEGuide(make(ROWS))
            options = prme.FitOptions(epochs=epochs, learning_rate=0.02, seed=start, bound_draws=20)
            fits.append((prme.fit(guide, train, options=options).bound, guide))
        scores.append(prme.held_out_density(max(fits, key=lambda fit: fit[0])[1], new, draws=50))
    return scores[0], scores[1]


def completion(guide: prme.PRMEGuide, split: prme.TokenSplit) -> float:
    """Mean log probability of a held-out word."""
    return -math.log(prme.Posterior(guide).perplexity(split))


def words(
    truth: Make,
    swapped: Make,
    unswapped: Make,
    seed: int,
    *,
    length: int = 40,
    observed: float = 0.5,
    epochs: int = 100,
    train: int = TRAIN,
    **given: Tensor,
) -> Scores:
    """Mean log probability of a hidden word of a new document under two topic models."""
    torch.manual_seed(seed)
    num = train + min(train, TEST)
    metadata = torch.randn(num, 2)
    counts, _ = prme.simulate_corpus(truth(num, metadata), [length] * num, seed, **given)
    corpus = prme.Corpus(counts, tuple(map(str, range(counts.shape[1]))))
    split = corpus[train:].split_tokens(observed=observed, seed=seed)
    scores = []
    for make in (swapped, unswapped):
        torch.manual_seed(seed)
        model = make(train, metadata[:train])
        guide = prme.PRMEGuide(model)
        options = prme.TrainOptions(batch_size=100, learning_rate=0.01, seed=seed)
        prme.Trainer(guide, corpus[:train], options).fit(epochs)
        if isinstance(model, CovariatePRME):
            model.metadata = metadata[train:]
        scores.append(completion(guide, split))
    return scores[0], scores[1]


def known(*kinds: Make, num_topics: int, dim: int = 3, **settings: Any) -> Make:
    """Makes a model, given its number of documents, whose topics are known: each has two words of its own."""
    theta = pairs(num_topics)

    def sample_theta(self: Any) -> Tensor:
        return pyro.sample("theta", dist.Dirichlet(1e4 * theta + 0.01))

    kind: Any = type("Known", kinds, {"sample_theta": sample_theta})
    return lambda num: kind(num_topics, 2 * num_topics, num, **sizes(kind, dim), **settings)


def sizes(kind: Any, dim: int) -> dict[str, int]:
    """Lengths of embeddings, for models that have some."""
    with_places = {"ell_dim": dim} if issubclass(kind, EmbeddedTopics) else {}
    return with_places | ({"h_dim": dim} if issubclass(kind, prme.PRME) else {})


def equal_sticks(num_topics: int) -> Tensor:
    """V whose weights are equal."""
    return 1 / torch.arange(num_topics, 1, -1, dtype=torch.float64)


def pairs(num_topics: int) -> Tensor:
    """Topics of two words each, shape (K, 2 K)."""
    return torch.kron(torch.eye(num_topics), torch.full((1, 2), 0.5)).double()


class Product(nn.Module):
    """f = h' ell, with nothing to learn."""

    def forward(self, h: Tensor, ell: Tensor) -> tuple[Tensor, Tensor]:
        mean = h @ ell.mT
        return mean, torch.zeros_like(mean)


class GivenPRME(prme.ShapePRME):
    """Metadata are h itself, and f = h' ell: what is left to learn is how each topic answers to them."""

    metadata: Tensor

    def default_decoder(self) -> nn.Module:
        return Product()

    def sample_h(self, batch: prme.Batch) -> Tensor:
        return self.metadata[batch.documents].unsqueeze(-2)


def few(
    truth: Make,
    swapped: Make,
    unswapped: Make,
    seed: int,
    *,
    train: int,
    length: int,
    observed: float = 0.1,
    decoder: Callable[[], Any] | None = None,
    rules: Callable[[], dict[str, Any]] = dict,
    **given: Tensor,
) -> Scores:
    """Mean log probability of a hidden word of 200 new documents, of which little is seen, learned from few documents.

    V starts at equal weights in both models.
    """
    torch.manual_seed(seed)
    model = truth(train + 200)
    metadata = torch.randn(train + 200, getattr(model, "h_dim", 1))
    model.metadata = metadata
    if decoder is not None:
        model.decoder = decoder()
    K = model.num_topics
    counts, _ = prme.simulate_corpus(model, [length] * (train + 200), seed, theta=pairs(K), **given)
    corpus = prme.Corpus(counts, tuple(map(str, range(counts.shape[1]))))
    split = corpus[train:].split_tokens(observed=observed, seed=seed)
    scores = []
    for make in (swapped, unswapped):
        torch.manual_seed(seed)
        model = make(train)
        model.metadata = metadata[:train]
        guide = prme.PRMEGuide(model, rules=rules())
        guide.plan(prme.Batch.from_csr(counts[:train]))
        guide.claim("V").set(equal_sticks(K))
        options = prme.TrainOptions(batch_size=train, learning_rate=0.02, seed=seed)
        prme.Trainer(guide, corpus[:train], options, start=None).fit(300)
        model.num_documents, model.metadata = 200, metadata[train:]
        scores.append(completion(guide, split))
    return scores[0], scores[1]


def factor(kind: Make, **settings: Any) -> Make:
    """Makes a model of rows, given their number."""
    return lambda num: kind(FACTORS, COLUMNS, num, h_dim=3, ell_dim=2, **settings)


def topic(kind: Any, scale: float = 0.0, vocab_size: int = WORDS, **settings: Any) -> Make:
    """Makes a model of documents, given their number and metadata.

    Args:
        kind: of model.
        scale: standard deviation of the mean of f at prior draws of h and ell, for a truth; 0 for a model to fit.
        vocab_size, settings: of the model.
    """

    def make(num: int, metadata: Tensor) -> Any:
        extra = {"metadata": metadata} if issubclass(kind, CovariatePRME) else {}
        if scale and issubclass(kind, prme.PRME):
            extra["decoder"] = linear(scale)
        return kind(TOPICS, vocab_size, num, **sizes(kind, 3), **settings, **extra)

    return make


class Covariates(CovariatePRME, prme.ShapePRME):
    """Metadata that shift h, f in the shape."""


def linear(scale: float, num_topics: int = TOPICS) -> LinearDecoder:
    """f = scale / sqrt(3) h' ell."""
    decoder = LinearDecoder(num_topics, 3, 3, max_variance=0.1)
    with torch.no_grad():
        decoder.weights.weight.copy_(scale / 3**0.5 * torch.eye(3))
        decoder.weights.bias.zero_()
    return decoder
