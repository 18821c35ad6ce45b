"""Fit and score any of the swapped models, in a few lines each. `Trainer` serves those of counts as well."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.answers.scores import log_predictive
from pyro_prme.checks import all_settings, whole
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.splits import TokenSplit
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.guide import ClosedFormGuide, converged
from pyro_prme.models.topic_model import TopicModel
from pyro_prme.prototype import eval_mode
from pyro_prme.rules import Run
from pyro_prme.swaps.factors import FactorModel, Rows

__all__ = [
    "Means",
    "completion_score",
    "fit",
    "fit_best",
    "held_out_bound",
    "held_out_density",
    "posterior_means",
]

_SCORE_WORDS = "score a topic model with `completion_score`."


def _model_of(guide: ClosedFormGuide) -> Any:
    """The model of a guide, or one sentence why it is none."""
    if not isinstance(guide, ClosedFormGuide):
        raise ValueError(f"The guide is a {type(guide).__name__}: give a guide, such as that of `model.make_guide()`.")
    if not isinstance(guide.model, TopicModel):
        raise ValueError(f"The guide's model is a {type(guide.model).__name__}: give the guide of a TopicModel.")
    return guide.model


def _factor_model_of(guide: ClosedFormGuide, otherwise: str) -> FactorModel:
    model = _model_of(guide)
    if not isinstance(model, FactorModel):
        raise ValueError(f"{type(model).__name__} has no factors: {otherwise}")
    return model


def _check(guide: ClosedFormGuide, batch: Batch, **counts: int) -> None:
    """Refuses what is no batch of the guide's model, and numbers below 1."""
    model = _model_of(guide)
    rows = isinstance(model, FactorModel)
    make = "model.batch_of(X)" if rows else "Batch.from_csr(counts)"
    if not isinstance(batch, Batch):
        raise ValueError(f"The data are {type(batch).__name__}, not a batch: make one with `{make}`.")
    real = rows and isinstance(model.to_draw(1), Rows)
    if isinstance(batch, Rows) != real:
        given, wanted = ("real-valued rows", "counts") if isinstance(batch, Rows) else ("counts", "real-valued rows")
        raise ValueError(f"The batch is of {given} and {type(model).__name__} is of {wanted}: make it with `{make}`.")
    if (batch.values if isinstance(batch, Rows) else batch.word) is None:
        raise ValueError(f"The batch has no values, since the model is to draw them: make one with `{make}`.")
    model.check(batch)
    for name, count in counts.items():
        whole(name, count)


def fit(
    guide: ClosedFormGuide, batch: Batch, epochs: int = 50, *, learning_rate: float = 1e-2, seed: int = 0
) -> list[float]:
    """Fits a guide and its model to one batch: an E-step, a gradient step, a natural step of rate 1, and so on.

    Args:
        guide: of the model.
        batch: all of the data.
        epochs: rounds.
        learning_rate: of Adam.
        seed: of the draws; the global random state is left alone.

    Returns:
        The bound at each round.
    """
    _check(guide, batch, epochs=epochs)
    all_settings(learning_rate=learning_rate, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        guide.plan(batch)
        elbo = ClosedForm_ELBO()
        model: Any = guide.model
        objective = elbo(model, guide)
        optimizer = torch.optim.Adam([p for p in objective.parameters() if p.requires_grad], lr=learning_rate)
        history: list[float] = []
        for _ in range(epochs):
            optimizer.zero_grad()
            with guide.resume(guide.run.local if history else {}):
                loss = objective(batch)
            loss.backward()
            history.append(-float(loss.detach()))
            guide.gather()
            optimizer.step()
            guide.natural_step(1.0)
    return history


def fit_best(
    make_guide: Callable[[], ClosedFormGuide], batch: Batch, epochs: int = 50, starts: int = 5, **kwargs: Any
) -> tuple[ClosedFormGuide, list[float]]:
    """Fits from several starts and keeps the one with the largest bound, the mean of its last five rounds.

    Binary loadings need it: most of their starts end in poor optima.

    Args:
        make_guide: makes a model and its guide; called with torch's seed set to 0, 1, ... in turn.
        batch, epochs, kwargs: see `fit`.
        starts: how many.

    Returns:
        The guide and its history.
    """
    whole("starts", starts)
    runs = []
    for seed in range(starts):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            guide = make_guide()
        runs.append((guide, fit(guide, batch, epochs, seed=seed, **kwargs)))
    return max(runs, key=lambda run: sum(run[1][-5:]))


@torch.no_grad()
def held_out_bound(guide: ClosedFormGuide, batch: Batch, draws: int = 20, seed: int = 0) -> float:
    r"""A lower bound on the mean log density of new rows and their embeddings, with global sites as they were learned.

    .. math:: \frac{1}{B} \sum_n \Big(E_q[\ln p(X_n, Z_n, f_n, h_n \mid \theta, \ell, V)] + H[q_n]\Big)

    h_n is the point where the network puts it, so that this bounds ln p(X_n, h_n) and not ln p(X_n): compare it between
    models with the same prior of h.

    Args:
        guide: fitted, of a `FactorModel`; `completion_score` is for topic models.
        batch: rows that it has not seen; their positions only name rows of the plate.
        draws: over which sampled terms are averaged.
        seed: of the draws.
    """
    _factor_model_of(guide, _SCORE_WORDS)
    _check(guide, batch, draws=draws)
    totals = []
    with torch.random.fork_rng(devices=[]), eval_mode(guide.model, guide):
        torch.manual_seed(seed)
        for _ in range(draws):
            run = guide.expectations(batch)
            terms = ClosedForm_ELBO().terms_of(run)
            local = [float(terms[name]) / float(torch.as_tensor(run.scale(name)).max()) for name in _row_sites(run)]
            totals.append(sum(local) / batch.size)
    return sum(totals) / draws


@torch.no_grad()
def held_out_density(guide: ClosedFormGuide, batch: Batch, draws: int = 200, seed: int = 0) -> float:
    r"""The mean log density of new rows by importance sampling, for comparing likelihoods.

    .. math:: \frac{1}{B} \sum_n \ln \frac{1}{S} \sum_s
              \frac{p(X_n \mid Z_n^s, \theta^s)\, p(Z_n^s, f_n^s, h_n)}{q(Z_n^s, f_n^s)}

    with draws from q and h_n where the network puts it, so that the density is that of (X_n, h_n). In expectation it is
    a lower bound too, above that of `held_out_bound` and nearer to the density with every draw; closed forms and
    gradients are scored alike, where `held_out_bound` of Poisson rows is lower by what the shares phi cost.

    Args:
        guide, batch, seed: see `held_out_bound`.
        draws: S.
    """
    _factor_model_of(guide, _SCORE_WORDS)
    _check(guide, batch, draws=draws)
    weights = []
    with torch.random.fork_rng(devices=[]), eval_mode(guide.model, guide):
        torch.manual_seed(seed)
        for _ in range(draws):
            guide(batch)
            weights.append(torch.stack([_log_ratio(name, guide.run) for name in _row_sites(guide.run)]).sum(0))
    return float((torch.stack(weights).logsumexp(0) - math.log(draws)).mean())


class Means(NamedTuple):
    """Posterior means of a factor model."""

    loadings: Tensor  # (B, K)
    factors: Tensor  # (K, D)


@torch.no_grad()
def posterior_means(guide: ClosedFormGuide, batch: Batch, draws: int = 200, seed: int = 0) -> Means:
    """E Z and E theta of a factor model, over draws, which every posterior has; E X is their product.

    Args:
        guide: fitted, of a `FactorModel`.
        batch: rows, seen or new.
        draws: how many.
        seed: of the draws.
    """
    model = _factor_model_of(guide, "give the guide of a FactorModel, such as PoissonPRME.")
    _check(guide, batch, draws=draws)
    with torch.random.fork_rng(devices=[]), eval_mode(model, guide):
        torch.manual_seed(seed)
        values = [guide(batch) for _ in range(draws)]
    loadings = torch.stack([value["Z"] for value in values]).mean(0)
    return Means(loadings, torch.stack([model.by_topic(value["theta"]) for value in values]).mean(0))


def _row_sites(run: Run) -> list[str]:
    """Sites of the documents plate."""
    nodes = [(name, node) for name, node in run.trace.nodes.items() if "rule" in node.get("infer", {})]
    return [name for name, node in nodes if any(frame.name == "documents" for frame in node["cond_indep_stack"])]


def _log_ratio(name: str, run: Run) -> Tensor:
    """ln p - ln q of a drawn site, ln p of an observed one and of a point, shape (B,)."""
    value, q = run.value(name), run.posterior(name)
    ratio = run.prior(name).log_prob(value)
    if not isinstance(q, dist.Delta):
        ratio = ratio - q.log_prob(value)
    return ratio.reshape(run.batch.size, -1).sum(-1)


@torch.no_grad()
def completion_score(guide: ClosedFormGuide, split: TokenSplit, draws: int = 50, seed: int = 0) -> float:
    r"""Mean log probability of held-out words given the others of their documents, for any topic model.

    .. math:: \ln \sum_k E_q\Big[\frac{Z_{nk}}{\sum_j Z_{nj}}\Big] E_q[\theta_{kd}]

    The proportions' mean is over draws from q(Z), so that models whose q(Z) has no mean in closed form are scored as
    the others are.

    Args:
        guide: fitted, with Dirichlet topics.
        split: of documents that it has not seen.
        draws: from q(Z).
        seed: of the draws.
    """
    model = _model_of(guide)
    whole("draws", draws)
    if not isinstance(split, TokenSplit):
        raise ValueError(f"The split is a {type(split).__name__}: make one with `corpus.split_tokens(observed, seed)`.")
    if not guide.rules:
        raise ValueError("The guide has no plan yet: fit it before it is scored.")
    if not hasattr(guide.rule("theta"), "topics"):
        raise ValueError(
            f"The factors of {type(model).__name__} are no topics here, and have no probabilities of words: "
            "score its rows with `held_out_density`."
        )
    counts, num = split.observed.counts, model.num_documents
    if counts.shape[0] > num:
        raise ValueError(
            f"The split has {counts.shape[0]} documents and the model was built for {num}: score as many at a time."
        )
    with torch.random.fork_rng(devices=[]), eval_mode(guide.model, guide), converged(guide):
        torch.manual_seed(seed)
        batch = Batch.from_csr(counts)
        shares = []
        for _ in range(draws):
            Z = guide(batch)["Z"].reshape(batch.size, -1)
            shares.append(Z / Z.sum(-1, keepdim=True))
    proportions = torch.stack(shares).mean(0).numpy()  # (B, K)
    words = log_predictive(proportions, guide.rule("theta").topics().numpy(), split.held_out)
    return float(words.sum() / split.held_out.counts.sum())
