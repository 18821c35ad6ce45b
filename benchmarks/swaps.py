"""Each swapped model against the unswapped one, on held-out data of its own.

Data are drawn from the swapped model; both models are fitted to the same data from the same starts for the same number
of epochs, and score the same held-out data. Likelihoods of rows are scored by the log density of a new row
(`held_out_density`), topic models by the log probability of a hidden word of a new document (`completion_score`): both
are means, and higher is better. The gain is the swapped model's score less the other's, paired by seed, and the error
its standard error over seeds.

Priors of what all documents share (sticks, embeddings, the process) matter while documents are few, and are overruled
by many: they are compared on 8 to 40 documents with topics that are known (`few`), and, where the names say so, on 300
with topics that are not (`words`). A horseshoe is compared where h is known, as in a regression on metadata; a learned
decoder may scale ell as it likes, and then its prior says next to nothing.

    python benchmarks/py [WORD ...]

writes results/swaps.json; with words, only the comparisons that have one in their name are measured anew.
"""

import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyro import distributions as dist
from swap_trials import (
    TOPICS,
    Covariates,
    GivenPRME,
    Make,
    Scores,
    equal_sticks,
    factor,
    few,
    known,
    linear,
    rows,
    topic,
    words,
)

import pyro_prme as prme
from pyro_prme.inference.rules import Point
from pyro_prme.models.gaussian_process import GaussianProcessPRME
from pyro_prme.models.priors import (
    FiniteDirichletPRME,
    FiniteDirichletSticks,
    HorseshoePRME,
    LogNormalPRME,
    PitmanYorPRME,
    PitmanYorSticks,
)

RESULTS = Path(__file__).parent / "results" / "swaps.json"
SEEDS = 10
MORE_SEEDS = {"horseshoe": 25}  # by the first word: heavy tails make seeds differ a lot
MEANING = {
    "score": "mean log density of a new row, or of a hidden word of a new document, higher is better",
    "gain": "of the swapped model over the other, paired by seed",
    "error": "standard error of the gain over seeds",
}
PLAIN = topic(prme.PRME)
GAUSSIAN, BINARY = factor(prme.GaussianPRME), factor(prme.BinaryPRME)
POISSON = factor(prme.PoissonPRME, beta=20.0, factors="gamma", gamma0=1.0)
NEGATIVE = factor(prme.NegativeBinomialPRME, beta=20.0, gamma0=1.0)
HALF, FOUR = torch.tensor([0.5, 4.0], dtype=torch.float64)
HDP40 = known(prme.HDP, num_topics=40)
YOR = known(PitmanYorSticks, prme.HDP, num_topics=40, discount=0.5)
YOR_LEARNED = known(
    PitmanYorSticks,
    prme.HDP,
    num_topics=40,
    discount=dist.Beta(torch.tensor(1.0, dtype=torch.float64), 1.0),
    alpha=dist.Gamma(torch.tensor(2.0, dtype=torch.float64), 1.0),
)
SYMMETRIC = known(FiniteDirichletSticks, prme.HDP, num_topics=40, alpha=20.0)
TWO = torch.tensor(2.0, dtype=torch.float64)
FLAT = dist.Gamma(TWO, 10.0)  # of mean 0.2
LEARNED = topic(prme.PRME, vocab_size=400, alpha=dist.Gamma(TWO, 1.0), beta=dist.Gamma(TWO, 0.4), gamma0=FLAT)


def sticks(truth: Make, swapped: Make, seed: int, train: int = 8) -> Scores:
    """Sticks alone, without f, against the HDP's; both as points on the logit scale, so that only the priors differ."""
    rules = lambda: {"V": Point(unconstrained=True)}  # noqa: E731
    return few(truth, swapped, HDP40, seed, train=train, length=40, rules=rules)


def process(unswapped: Make, seed: int) -> Scores:
    """A Gaussian process on four clusters of five topics."""
    corners = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    settings = {"num_topics": 20, "beta": 20.0}
    truth = known(GaussianProcessPRME, amplitude=2.0, **settings)
    return few(
        truth, known(GaussianProcessPRME, **settings), unswapped, seed,
        train=40, length=100, ell=2 * corners.repeat_interleave(5, 0), V=equal_sticks(20),
    )  # fmt: skip


def answers(scale: float, seed: int) -> Scores:
    """Metadata of ten columns to which few topics answer: a horseshoe of scale 0.1 against N(0, scale^2)."""
    size = {"num_topics": 20, "dim": 10, "beta": 20.0}
    sparse = known(HorseshoePRME, GivenPRME, ell_scale=0.1, **size)
    dense = known(GivenPRME, ell_scale=scale, **size)
    return few(sparse, sparse, dense, seed, train=40, length=100, observed=0.05, V=equal_sticks(20))


def horseshoe(train: int, seed: int) -> Scores:
    """Embeddings of heavy tails, seen through a linear f; both models learn h and the default decoder."""
    swapped, unswapped = (known(kind, num_topics=20, beta=20.0) for kind in (HorseshoePRME, prme.PRME))
    return few(
        swapped, swapped, unswapped, seed,
        train=train, length=100, decoder=partial(linear, 2.0, 20), V=equal_sticks(20),
    )  # fmt: skip


def metadata(seed: int) -> Scores:
    """Two columns that shift h, f in the shape, and documents of which four words are seen."""
    truth, fitted = topic(Covariates, 2.0, beta=20.0, h_scale=0.3), topic(Covariates, beta=20.0)
    without = topic(prme.ShapePRME, beta=20.0)
    return words(truth, fitted, without, seed, observed=0.1, V=equal_sticks(TOPICS))


def clusters(unswapped: Make, seed: int) -> Scores:
    """A Gaussian process on two clusters of topics of equal size, with long documents of which little is seen."""
    ell = torch.tensor([[-1.5, 0.0, 0.0], [1.5, 0.0, 0.0]], dtype=torch.float64).repeat_interleave(TOPICS // 2, 0)
    truth = topic(GaussianProcessPRME, amplitude=2.0, beta=50.0)
    fitted = topic(GaussianProcessPRME, beta=50.0)
    return words(truth, fitted, unswapped, seed, length=200, observed=0.05, ell=ell, V=equal_sticks(TOPICS))


def sparse_topics(swapped: Make, seed: int, epochs: int = 100) -> Scores:
    """Few documents of many words, from topics far sparser than gamma0 = 0.2 says."""
    truth = topic(prme.PRME, 2.0, 400, alpha=3.0, gamma0=0.02)
    return words(truth, swapped, topic(prme.PRME, vocab_size=400), seed, train=60, epochs=epochs)


#: By name: what draws the data, the swapped model and the other, and how they are scored.
COMPARISONS: dict[str, Callable[[int], Scores]] = {
    "negative-binomial against Poisson counts": partial(rows, NEGATIVE, NEGATIVE, POISSON, r=HALF, epochs=200),
    "Poisson against negative-binomial counts": partial(rows, POISSON, POISSON, NEGATIVE, epochs=200),
    "binary against non-negative loadings": partial(rows, BINARY, BINARY, GAUSSIAN, tau=FOUR, starts=12),
    "non-negative against binary loadings": partial(rows, GAUSSIAN, GAUSSIAN, BINARY, tau=FOUR),
    "covariates against none": metadata,
    "Gaussian process against f = 0": partial(process, known(prme.HDP, num_topics=20, beta=20.0)),
    "Gaussian process against the decoder": partial(process, known(prme.PRME, num_topics=20, beta=20.0)),
    "Gaussian process against f = 0, 300 documents": partial(clusters, topic(prme.HDP, beta=50.0)),
    "Gaussian process against the decoder, 300 documents": partial(clusters, topic(prme.PRME, beta=50.0)),
    "log-normal against Gamma loadings": partial(
        words, topic(LogNormalPRME, 1.0, spread=0.5), topic(LogNormalPRME, spread=0.5), PLAIN
    ),
    "horseshoe against Normal embeddings": partial(answers, 0.1),
    "horseshoe against Normal embeddings, of scale 0.3": partial(answers, 0.3),
    "horseshoe against Normal embeddings, of scale 1": partial(answers, 1.0),
    "horseshoe against Normal embeddings, h not given, 8 documents": partial(horseshoe, 8),
    "horseshoe against Normal embeddings, h not given, 12 documents": partial(horseshoe, 12),
    "horseshoe against Normal embeddings, h not given, 20 documents": partial(horseshoe, 20),
    "Pitman-Yor against GEM sticks": partial(sticks, YOR, YOR),
    "learned discount against GEM sticks": partial(sticks, YOR, YOR_LEARNED),
    "symmetric Dirichlet against GEM weights": partial(sticks, SYMMETRIC, SYMMETRIC),
    "Pitman-Yor against GEM sticks, 300 documents": partial(
        words, topic(PitmanYorPRME, 2.0, discount=0.5), topic(PitmanYorPRME, discount=0.5), PLAIN
    ),
    "symmetric Dirichlet against GEM weights, 300 documents": partial(
        words, topic(FiniteDirichletPRME, 2.0, alpha=8.0), topic(FiniteDirichletPRME, alpha=8.0), PLAIN
    ),
    "learned gamma0 against 0.2": partial(sparse_topics, topic(prme.PRME, vocab_size=400, gamma0=FLAT)),
    "learned alpha, beta and gamma0 against the defaults": partial(sparse_topics, LEARNED, epochs=300),
    "the same, both trained a third as long": partial(sparse_topics, LEARNED),
}


def trial(name: str, seed: int) -> Scores:
    """One comparison with one seed."""
    return COMPARISONS[name](seed)


def measured(name: str, seeds: Iterable[int], each: Callable[..., Iterable[Scores]] = map) -> dict[str, Any]:
    """One comparison over seeds.

    Args:
        name: a key of `COMPARISONS`.
        seeds: to pair by.
        each: maps `trial` over the seeds, here or in other processes.
    """
    scores = np.array(list(each(partial(trial, name), seeds)))  # (seeds, 2)
    gain = scores[:, 0] - scores[:, 1]
    error = gain.std(ddof=1) / len(gain) ** 0.5
    numbers = {"swapped": scores[:, 0].mean(), "unswapped": scores[:, 1].mean(), "gain": gain.mean(), "error": error}
    wins = f"{int((gain > 0).sum())} of {len(gain)}"
    return {"comparison": name, **{key: round(float(x), 4) for key, x in numbers.items()}, "seeds won": wins}


def prepare() -> None:
    """Of a process: double precision, one thread."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)


def main() -> None:
    stored = json.loads(RESULTS.read_text())["comparisons"] if RESULTS.exists() else []
    known = {row["comparison"]: row for row in stored}
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=prepare) as pool:
        for name in COMPARISONS:
            if not sys.argv[1:] or any(word in name for word in sys.argv[1:]):
                known[name] = measured(name, range(MORE_SEEDS.get(name.split()[0], SEEDS)), pool.map)
                print(known[name], flush=True)
                kept = [known[name] for name in COMPARISONS if name in known]
                RESULTS.write_text(json.dumps({"comparisons": kept, **MEANING}, indent=1) + "\n")


if __name__ == "__main__":
    main()
