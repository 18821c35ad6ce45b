"""What the structure engine costs: sweeps against code by hand and BayesPy, time to a bound against AutoNormal.

    python benchmarks/conjugacy.py [--quick] [--out benchmarks/results/conjugacy.json]

Every number is a ratio of medians, taken in turns in the same process with one thread. Memory is the peak resident size
of a process of its own, beside that of the data.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch
from measuring import Apart, Bar, circumstances, markdown, verdicts
from pyro import distributions as dist
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from scipy.special import digamma

from pyro_prme.conjugacy import Ascent, find_structure
from pyro_prme.inference import ClosedFormGuide, FitOptions, fit
from pyro_prme.inference.rules import Conjugate, MeanFieldNormal

ENGINE_ALONE = (Conjugate(), MeanFieldNormal())


def mixture(x: torch.Tensor, num_classes: int) -> None:
    """A Gaussian mixture with diagonal precisions."""
    num_columns = x.shape[1]
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(num_classes)))
    with pyro.plate("components", num_classes):
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0).expand([num_columns]).to_event(1))
        tau = pyro.sample("tau", dist.Gamma(1.0, 1.0).expand([num_columns]).to_event(1))
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(mu[z], tau[z].rsqrt()).to_event(1), obs=x)


def lda(words: torch.Tensor, document: torch.Tensor, num_documents: int, num_topics: int, num_words: int) -> None:
    """Latent Dirichlet allocation by tokens."""
    with pyro.plate("topics", num_topics):
        phi = pyro.sample("phi", dist.Dirichlet(torch.full((num_words,), 0.3)))
    with pyro.plate("documents", num_documents):
        theta = pyro.sample("theta", dist.Dirichlet(torch.full((num_topics,), 0.5)))
    with pyro.plate("tokens", len(words)):
        c = pyro.sample("C", dist.Categorical(theta[document]))
        pyro.sample("X", dist.Categorical(phi[c]), obs=words)


def regression(X: torch.Tensor, y: torch.Tensor) -> None:
    """Linear regression with automatic relevance determination and unknown noise."""
    with pyro.plate("features", X.shape[1]):
        alpha = pyro.sample("alpha", dist.Gamma(1e-1, 1e-1))
        w = pyro.sample("w", dist.Normal(0.0, alpha.rsqrt()))
    tau = pyro.sample("tau", dist.Gamma(1e-1, 1e-1))
    with pyro.plate("data", len(X)):
        pyro.sample("y", dist.Normal(X @ w, tau.rsqrt()), obs=y)


def pca(x: torch.Tensor, num_factors: int) -> None:
    """Principal components with automatic relevance determination."""
    with pyro.plate("factors", num_factors):
        alpha = pyro.sample("alpha", dist.Gamma(1e-1, 1e-1))
    with pyro.plate("columns", x.shape[1]):
        W = pyro.sample("W", dist.Normal(torch.zeros(num_factors), alpha.rsqrt()).to_event(1))
    tau = pyro.sample("tau", dist.Gamma(1e-1, 1e-1))
    with pyro.plate("rows", len(x)):
        z = pyro.sample("z", dist.Normal(torch.zeros(num_factors), 1.0).to_event(1))
        pyro.sample("x", dist.Normal(z @ W.T, tau**-0.5).to_event(1), obs=x)


class MixtureByHand:
    """Coordinate ascent for the mixture in numpy, in the order z, weights, mu, tau."""

    def __init__(self, x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
        self.x, self.squares = x, x**2
        self.mean, self.variance = mean, variance
        self.shape, self.rate = np.full_like(mean, 2.0), np.full_like(mean, 2.0)
        self.concentration = np.ones(len(mean), x.dtype)

    def sweep(self) -> None:
        """One update of each factor."""
        elog, precision = digamma(self.shape) - np.log(self.rate), self.shape / self.rate
        logits = self.x @ (precision * self.mean).T - 0.5 * (self.squares @ precision.T)
        logits += digamma(self.concentration) - digamma(self.concentration.sum())
        logits += 0.5 * (elog - precision * (self.mean**2 + self.variance)).sum(1)
        logits -= logits.max(1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(1, keepdims=True)
        counts, sums, squares = logits.sum(0), logits.T @ self.x, logits.T @ self.squares
        self.concentration = 1.0 + counts
        self.variance = 1 / (1 / 100.0 + precision * counts[:, None])
        self.mean = self.variance * precision * sums
        self.shape = 1.0 + 0.5 * counts[:, None] + 0 * self.shape
        spread = self.mean**2 + self.variance
        self.rate = 1.0 + 0.5 * (squares - 2 * self.mean * sums + counts[:, None] * spread)


class LDAByHand:
    """Coordinate ascent for LDA in torch, in the order C, theta, phi."""

    def __init__(self, words: torch.Tensor, document: torch.Tensor, gamma: torch.Tensor, concentration: torch.Tensor):
        self.words, self.document, self.gamma, self.concentration = words, document, gamma, concentration

    def sweep(self) -> None:
        """One update of each factor."""
        elog_phi = self.gamma.digamma() - self.gamma.sum(-1, keepdim=True).digamma()
        elog_theta = self.concentration.digamma() - self.concentration.sum(-1, keepdim=True).digamma()
        shares = (elog_theta[self.document] + elog_phi.T.contiguous()[self.words]).softmax(-1)
        self.concentration = torch.full_like(self.concentration, 0.5).index_add_(0, self.document, shares)
        self.gamma = torch.full_like(self.gamma.T, 0.3).contiguous().index_add_(0, self.words, shares).T


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Medians of both, in milliseconds, and of the ratio within each round."""
    ours(), theirs()
    pairs = []
    for _ in range(rounds):
        seconds = []
        for act in (ours, theirs):
            begin = time.perf_counter()
            act()
            seconds.append(time.perf_counter() - begin)
        pairs.append(seconds)
    first, second = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
    return {"ours_ms": first, "theirs_ms": second, "ratio": statistics.median(a / b for a, b in pairs)}


def mixture_data(num_rows: int, num_columns: int, num_classes: int) -> torch.Tensor:
    """Rows round centres far apart."""
    torch.manual_seed(0)
    centres = 5 * torch.randn(num_classes, num_columns)
    return centres[torch.randint(0, num_classes, (num_rows,))] + torch.randn(num_rows, num_columns)


def mixture_pair(num_rows: int, dtype: torch.dtype) -> tuple[Callable, Callable, Callable[[], float]]:
    """Sweeps of the engine and of the code by hand from the same start, and how far apart their answers are."""
    torch.set_default_dtype(dtype)
    num_columns, num_classes = 10, 20
    x = mixture_data(num_rows, num_columns, num_classes)
    ascent = Ascent(find_structure(mixture, (x, num_classes)))
    family = ascent.program.families["mu"]
    ascent.natural["mu"] = family.start(x[:num_classes].clone(), 100.0)
    ascent.natural["tau"] = {
        "log": torch.ones(num_classes, num_columns),
        "x": torch.full((num_classes, num_columns), -2.0),
    }
    ascent.natural["weights"] = {"log": torch.zeros(num_classes)}
    start = family.means(ascent.natural["mu"])
    variance = start["xx"] - start["x"] ** 2
    hand = MixtureByHand(x.numpy(), start["x"].numpy().copy(), variance.numpy().copy())
    order = ("z", "weights", "mu", "tau")

    def apart() -> float:
        return float((ascent.posterior("mu").mean - torch.as_tensor(hand.mean)).abs().max())

    return lambda: ascent.sweep(order), hand.sweep, apart


def lda_pair(num_tokens: int) -> tuple[Callable, Callable]:
    """Sweeps of the engine alone and of the code by hand."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    num_documents, num_topics, num_words = num_tokens // 100, 50, 5000
    document = torch.arange(num_documents).repeat_interleave(100)
    words = torch.randint(0, num_words, (num_tokens,))
    ascent = Ascent(find_structure(lda, (words, document, num_documents, num_topics, num_words)))
    gamma, concentration = (ascent.natural[n]["log"] + 1 for n in ("phi", "theta"))
    hand = LDAByHand(words, document, gamma.clone(), concentration.clone())
    return lambda: ascent.sweep(("C", "theta", "phi")), hand.sweep


def bayespy_pairs(scale: int) -> dict[str, tuple[Callable, Callable]]:
    """Sweeps of the engine and of BayesPy, by model, at so many times the size of BayesPy's own demonstrations."""
    warnings.simplefilter("ignore")
    from bayespy.inference import VB
    from bayespy.nodes import Categorical, Dirichlet, Gamma, GaussianARD, Mixture, SumMultiply

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (BayesPy draws from the global state)
    pairs: dict[str, tuple[Callable, Callable]] = {}

    X = torch.randn(20 * scale, 5)
    y = X @ torch.tensor([1.0, -2.0, 0.0, 0.5, 0.0]) + 0.3 * torch.randn(len(X))
    ours = Ascent(find_structure(regression, (X, y)))
    alpha, tau = Gamma(0.1, 0.1, plates=(5,)), Gamma(0.1, 0.1)
    w = GaussianARD(0, alpha, shape=(5,), plates=())
    seen = GaussianARD(SumMultiply("i,i", w, X.numpy()), tau)
    seen.observe(y.numpy())
    peer = VB(seen, w, alpha, tau)
    pairs["regression with ARD"] = (
        lambda: ours.sweep(("w", "alpha", "tau")),
        lambda: peer.update(w, alpha, tau, verbose=False, repeat=1, tol=None),
    )

    rows = mixture_data(200 * scale, 2, 5)
    mix = Ascent(find_structure(mixture, (rows, 5)))
    weights = Dirichlet(np.ones(5))
    z = Categorical(weights, plates=(len(rows), 1))
    mu, precision = GaussianARD(0, 0.01, plates=(2, 5)), Gamma(1, 1, plates=(2, 5))
    given = Mixture(z, GaussianARD, mu, precision, plates=(len(rows), 2))
    given.observe(rows.numpy())
    z.initialize_from_random()
    mixed = VB(given, z, mu, precision, weights)
    pairs["mixture"] = (
        lambda: mix.sweep(("z", "weights", "mu", "tau")),
        lambda: mixed.update(z, weights, mu, precision, verbose=False, repeat=1, tol=None),
    )

    table = torch.randn(100 * scale, 3) @ torch.randn(3, 10) + 0.3 * torch.randn(100 * scale, 10)
    factors = Ascent(find_structure(pca, (table, 4)))
    ard, noise = Gamma(0.1, 0.1, plates=(4,)), Gamma(0.1, 0.1)
    W = GaussianARD(0, ard, shape=(4,), plates=(1, 10))
    scores = GaussianARD(0, 1, shape=(4,), plates=(len(table), 1))
    cells = GaussianARD(SumMultiply("d,d->", W, scores), noise)
    cells.observe(table.numpy())
    scores.initialize_from_random()
    components = VB(cells, W, scores, ard, noise)
    pairs["PCA with ARD"] = (
        lambda: factors.sweep(("W", "z", "alpha", "tau")),
        lambda: components.update(W, scores, ard, noise, verbose=False, repeat=1, tol=None),
    )
    return pairs


def against_auto_normal(model: Callable, args: tuple, gap: float, seconds: float) -> dict[str, Any]:
    """Seconds of both to AutoNormal's best smoothed bound less a gap, at the best of three learning rates of its."""
    torch.set_default_dtype(torch.float32)
    best: tuple[float, list[tuple[float, float]]] | None = None
    for rate in (0.003, 0.01, 0.03):
        pyro.clear_param_store()
        torch.manual_seed(0)
        guide = AutoNormal(model, init_scale=0.1)
        svi = SVI(model, guide, pyro.optim.Adam({"lr": rate}), Trace_ELBO())
        trail, recent, begin = [], list[float](), time.perf_counter()
        while time.perf_counter() - begin < seconds:
            recent.append(-svi.step(*args))
            if len(recent) % 20 == 0:
                trail.append((time.perf_counter() - begin, statistics.fmean(recent[-20:])))
        found = max(bound for _, bound in trail)
        if best is None or found > best[0]:
            best = found, trail
    target = best[0] - gap  # type: ignore[index]
    theirs = next(when for when, bound in best[1] if bound >= target)  # type: ignore[index]
    begin = time.perf_counter()
    fitted = ClosedFormGuide(model, candidates=ENGINE_ALONE)
    when: list[float] = []

    def note(record: Mapping[str, Any]) -> None:
        if record["bound"] >= target:
            when.append(time.perf_counter() - begin)

    result = fit(fitted, *args, options=FitOptions(epochs=200, tolerance=1e-6, progress=False), callback=note)
    return {
        "target": target,
        "ours_s": when[0] if when else None,
        "theirs_s": theirs,
        "ratio": theirs / when[0] if when else None,
        "our_bound": result.bound,
    }


def summed_out_mixture(x: torch.Tensor, num_classes: int) -> None:
    """The mixture with its classes summed out, for gradients."""
    num_columns = x.shape[1]
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(num_classes)))
    with pyro.plate("components", num_classes):
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0).expand([num_columns]).to_event(1))
        tau = pyro.sample("tau", dist.Gamma(1.0, 1.0).expand([num_columns]).to_event(1))
    with pyro.plate("data", len(x)):
        parts = dist.Normal(mu, tau.rsqrt()).to_event(1)
        pyro.sample("x", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=x)


def _sweeps_apart(num_rows: int) -> Callable[[], None]:
    torch.set_num_threads(1)
    return mixture_pair(num_rows, torch.float32)[0]


def memory(num_rows: int) -> dict[str, float]:
    """Peak MiB of a process that sweeps over a mixture, beside the data and one table of responsibilities."""
    small, large = (Apart(_sweeps_apart, rows) for rows in (1000, num_rows))
    peaks = []
    for process in (small, large):
        for _ in range(3):
            process()
        peaks.append(process.close())
    data = num_rows * 10 * 4 / 2**20
    return {"data_mib": data, "responsibilities_mib": 2 * data, "peak_above_small_mib": peaks[1] - peaks[0]}


def measure(quick: bool) -> dict[str, Any]:
    """All measurements."""
    torch.set_num_threads(1)
    rounds, rows = (3, 5000) if quick else (15, 50_000)
    out: dict[str, Any] = {"circumstances": circumstances(), "sweeps": {}}
    for dtype in (torch.float64, torch.float32):
        ours, theirs, apart = mixture_pair(rows, dtype)
        name = f"mixture of {rows} x 10, K = 20, {str(dtype).removeprefix('torch.')}, against numpy by hand"
        out["sweeps"][name] = in_turns(ours, theirs, rounds) | {"largest_difference": apart()}
    tokens = 10_000 if quick else 100_000
    out["sweeps"][f"LDA of {tokens} tokens, K = 50, against torch by hand"] = in_turns(*lda_pair(tokens), rounds)
    for name, pair in bayespy_pairs(1 if quick else 10).items():
        out["sweeps"][f"{name}, against BayesPy"] = in_turns(*pair, rounds)
    out["memory"] = memory(rows * 4)
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    X = torch.randn(1000, 10)
    y = X @ torch.linspace(-1, 1, 10) + 0.5 * torch.randn(1000)
    seconds = 5.0 if quick else 20.0
    x = mixture_data(2000, 2, 4)
    out["to_a_bound"] = {
        "regression with ARD": against_auto_normal(regression, (X, y), 1.0, seconds),
        "mixture, classes summed out": against_auto_normal(summed_out_mixture, (x, 4), 5.0, seconds),
    }
    return out


def bars_of(found: Mapping[str, Any]) -> list[Bar]:
    """What is to be reached."""
    bars: list[Bar] = []
    limits = (("float64", 2.5), ("float32", 1.5), ("LDA", 2.5), ("BayesPy", 1.0))
    for name, row in found["sweeps"].items():
        limit = next(limit for key, limit in limits if key in name)
        bars.append((f"{name}: at most {limit}", f"{row['ratio']:.2f}", row["ratio"] <= limit))
    for name, row in found["to_a_bound"].items():
        ratio = row["ratio"]
        shown = "not reached" if ratio is None else f"{ratio:.0f}"
        bars.append((f"{name}: AutoNormal takes at least 20 times as long", shown, ratio is not None and ratio >= 20))
    return bars


def text(found: Mapping[str, Any]) -> str:
    """Tables of sweeps, of times to a bound and of memory, and whether the bars are met."""
    sweeps = [[n, *(f"{r[k]:.2f}" for k in ("ours_ms", "theirs_ms", "ratio"))] for n, r in found["sweeps"].items()]
    bounds = [
        [
            name,
            f"{row['target']:.1f}",
            *("never" if row[k] is None else f"{row[k]:.2f}" for k in ("ours_s", "theirs_s")),
        ]
        for name, row in found["to_a_bound"].items()
    ]
    memory = [[f"{found['memory'][key]:.0f}" for key in ("data_mib", "responsibilities_mib", "peak_above_small_mib")]]
    return "\n\n".join(
        [
            markdown(["a sweep of", "ours, ms", "theirs, ms", "ratio"], sweeps),
            markdown(["to a bound", "which", "ours, s", "AutoNormal, s"], bounds),
            markdown(["data, MiB", "responsibilities, MiB", "peak above that of a thousand rows, MiB"], memory),
            verdicts(bars_of(found)),
        ]
    )


def main() -> None:
    """Measures, prints and stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "conjugacy.json")
    options = parser.parse_args()
    found = measure(options.quick)
    print(text(found))
    if not options.quick:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
