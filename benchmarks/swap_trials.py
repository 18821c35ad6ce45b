"""How a swapped model and the unswapped one are fitted to the same data and scored, for `swaps.py`."""

from collections.abc import Callable
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor, nn

import pyro_prme as prme
from pyro_prme import swaps
from pyro_prme.guide import PRMEGuide
from pyro_prme.models.networks.layers import LinearDecoder
from pyro_prme.train import Trainer

FACTORS, COLUMNS, ROWS = 4, 12, 100
TOPICS, WORDS, TRAIN, TEST = 8, 80, 300, 150

Make = Callable[..., Any]
Scores = tuple[float, float]


def rows(
    truth: Make, swapped: Make, unswapped: Make, seed: int, *, epochs: int = 60, starts: int = 3, **given: Tensor
) -> Scores:
    """Mean log density of a new row under two likelihoods, each the best of as many starts by its training bound."""
    torch.manual_seed(seed)
    X, _ = swaps.simulate(truth(2 * ROWS), 2 * ROWS, seed, **given)
    scores = []
    for make in (swapped, unswapped):
        batch_of = make(ROWS).batch_of
        guide, _ = swaps.fit_best(
            lambda make=make: make(ROWS).make_guide(), batch_of(X[:ROWS]), epochs, starts=starts, learning_rate=0.02
        )
        scores.append(swaps.held_out_density(guide, batch_of(X[ROWS:]), draws=50))
    return scores[0], scores[1]


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
    counts, _ = swaps.simulate_corpus(truth(num, metadata), [length] * num, seed, **given)
    corpus = prme.Corpus(counts, tuple(map(str, range(counts.shape[1]))))
    split = corpus[train:].split_tokens(observed=observed, seed=seed)
    scores = []
    for make in (swapped, unswapped):
        torch.manual_seed(seed)
        model = make(train, metadata[:train])
        guide = model.make_guide() if hasattr(model, "make_guide") else PRMEGuide(model)
        Trainer(model, guide, corpus.counts[:train], batch_size=100, learning_rate=0.01, seed=seed).fit(epochs)
        if isinstance(model, swaps.CovariatePRME):
            model.metadata = metadata[train:]
        scores.append(swaps.completion_score(guide, split))
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
    return {"h_dim": dim, "ell_dim": dim} if issubclass(kind, prme.PRME) else {}


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
    metadata = torch.randn(train + 200, model.h_dim)
    model.metadata = metadata
    if decoder is not None:
        model.decoder = decoder()
    K = model.num_topics
    counts, _ = swaps.simulate_corpus(model, [length] * (train + 200), seed, theta=pairs(K), **given)
    corpus = prme.Corpus(counts, tuple(map(str, range(counts.shape[1]))))
    split = corpus[train:].split_tokens(observed=observed, seed=seed)
    scores = []
    for make in (swapped, unswapped):
        torch.manual_seed(seed)
        model = make(train)
        model.metadata = metadata[:train]
        guide = model.make_guide(rules()) if hasattr(model, "make_guide") else PRMEGuide(model, rules=rules())
        guide.plan(prme.Batch.from_csr(counts[:train]))
        guide.rule("V").set(equal_sticks(K))
        Trainer(model, guide, counts[:train], batch_size=train, learning_rate=0.02, start=None, seed=seed).fit(300)
        model.num_documents, model.metadata = 200, metadata[train:]
        scores.append(swaps.completion_score(guide, split))
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
        extra = {"metadata": metadata} if issubclass(kind, swaps.CovariatePRME) else {}
        if scale:
            extra["decoder"] = linear(scale)
        model = kind(TOPICS, vocab_size, num, **sizes(kind, 3), **settings, **extra)
        if scale and isinstance(model, swaps.CovariatePRME):
            torch.nn.init.normal_(model.effect)
        return model

    return make


class Covariates(swaps.CovariatePRME, prme.ShapePRME):
    """Metadata that shift h, f in the shape."""


def linear(scale: float, num_topics: int = TOPICS) -> LinearDecoder:
    """f = scale / sqrt(3) h' ell."""
    decoder = LinearDecoder(num_topics, 3, 3, max_variance=0.1)
    with torch.no_grad():
        decoder.weights.weight.copy_(scale / 3**0.5 * torch.eye(3))
        decoder.weights.bias.zero_()
    return decoder
