"""Do correlations of topics say which topics meet in new documents? Ranks against four views of test documents.

    python -m benchmarks.paper.correlations --corpus kjv nyt nips_1987_1999 20news --seeds 0 1

The default is fitted to the training documents (K = 100), and for all pairs of topics in use Spearman's correlation is
taken between each kind of number from training documents and what test documents show:

    proportions   correlation of proportions in test documents: shares the model's own habits with kind="posterior"
    halves        the same between the random halves of each test document, so that no word counts on both sides
    lift          by how much products of shares in the two halves exceed what independence gives
    words         mean log ratio of how often top words of both topics meet in a test document and would by chance

"sign" is how often the sign of a correlation whose 95% interval leaves zero out is that of the halves; "held up" the
share of pairs that do. For three topics: ranks of third moments against those of test documents, for 2,000 triples of
the 30 most used topics. Results grow in results/correlations.json.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.stats import spearmanr

import pyro_prme as prme
from benchmarks.paper.experiment import RESULTS, add, is_there, parser, recorded
from benchmarks.paper.kept_runs import EPOCHS, corpus_parts, kept_run
from pyro_prme.answers.correlations import correlation, correlation_error, correlation_interval, third_moment

PATH = RESULTS / "correlations.json"
VIEWS = ("proportions", "halves", "lift", "words")
_MOST = 1500  # documents looked at
_TRIPLES = 2000


def some(corpus: prme.Corpus) -> prme.Corpus:
    """At most so many documents, at random."""
    if len(corpus) <= _MOST:
        return corpus
    return corpus[np.sort(np.random.default_rng(0).choice(len(corpus), _MOST, replace=False))]


def halves(corpus: prme.Corpus) -> list[sparse.csr_matrix]:
    """Each document's tokens dealt out to two at random."""
    counts = sparse.csr_matrix(corpus.counts)
    one = counts.copy()
    one.data = np.random.default_rng(1).binomial(counts.data.astype(int), 0.5).astype(counts.dtype)
    parts = [one, counts - one]
    for part in parts:
        part.eliminate_zeros()
    return parts


def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Correlations between columns of two tables, divided by those of a column with itself."""
    a, b = a - a.mean(0), b - b.mean(0)
    found = (a.T @ b + b.T @ a) / 2
    scale = np.sqrt(np.maximum(np.diag(found), 1e-12))
    return found / np.outer(scale, scale)


def of_words(topics: np.ndarray, corpus: prme.Corpus) -> np.ndarray:
    """Mean log ratio over pairs of different words among the ten top ones of two topics, shape (K, K)."""
    num, top = len(topics), np.argsort(-topics, axis=1, kind="stable")[:, :10].ravel()
    seen = (sparse.csr_matrix(corpus.counts)[:, top] > 0).astype(float)
    together = np.asarray((seen.T @ seen).todense())
    single, documents = np.diag(together), len(corpus)
    ratio = np.log((together + 0.5) / (np.outer(single, single) / documents + 0.5))
    other = top[:, None] != top
    sums, pairs = (x.reshape(num, 10, num, 10).sum((1, 3)) for x in (np.where(other, ratio, 0.0), other.astype(float)))
    return sums / np.maximum(pairs, 1)


def measured(key: dict[str, Any]) -> dict[str, Any]:
    """Ranks of one fit's correlations against the views of test documents."""
    train, test = map(some, corpus_parts(key["corpus"], key["part"]))
    posterior = kept_run(key["corpus"], key["part"], "default", key["seed"])
    used = np.argsort(-posterior.usage().values, kind="stable")[: posterior.num_topics_used]
    upper = np.triu_indices(len(used), 1)
    new = posterior.proportions(test).values[:, used]
    a, b = (posterior.proportions(half).values[:, used] for half in halves(test))
    product_of_means = np.outer((a + b).mean(0) / 2, (a + b).mean(0) / 2)
    views = {
        "proportions": correlation(new),
        "halves": between(a, b),
        "lift": (a.T @ b + b.T @ a) / 2 / len(a) / product_of_means,
        "words": of_words(posterior.topics().values[used], test),
    }
    shares = posterior.proportions(train).values[:, used]
    values = {
        "roots": np.sqrt(shares),
        "posterior": shares,
        "function": posterior.random_function(train).values[:, used],
    }
    tables = {"roots": np.sqrt(new), "posterior": new}
    rng = np.random.default_rng(2)
    triples = [rng.choice(min(30, len(used)), 3, replace=False) for _ in range(_TRIPLES)]
    truth = {name: [third_moment(table, *t) for t in triples] for name, table in tables.items()}
    record: dict[str, Any] = {"used": len(used)}
    for kind, x in values.items():
        found = correlation(x)
        low, high = correlation_interval(found, correlation_error(x), 0.95)
        holds = ((low > 0) | (high < 0))[upper]
        same = np.sign(found[upper]) == np.sign(views["halves"][upper])
        third = [third_moment(x, *t) for t in triples]
        record[kind] = {view: float(spearmanr(found[upper], views[view][upper])[0]) for view in VIEWS} | {
            "held up": float(holds.mean()),
            "sign": float(same[holds].mean()),
            "third": {name: float(spearmanr(third, expected)[0]) for name, expected in truth.items()},
        }
    return record


def table(records: list[dict[str, Any]]) -> str:
    """One row a corpus and kind: means over seeds."""
    lines = [f"| corpus | kind | seeds | {' | '.join(VIEWS)} | held up | sign | third, by roots | by proportions |"]
    lines.append("|---|---|---:|" + "---:|" * (len(VIEWS) + 4))
    for part, corpus in sorted({(r["part"], r["corpus"]) for r in records}):
        here = [r for r in records if (r["part"], r["corpus"]) == (part, corpus)]
        for kind in ("roots", "posterior", "function"):
            of = [r[kind] for r in here]
            cells = [f"{np.mean([r[name] for r in of]):.3f}" for name in (*VIEWS, "held up", "sign")]
            cells += [f"{np.mean([r['third'][name] for r in of]):.3f}" for name in ("roots", "posterior")]
            lines.append(f"| {corpus}, {part} | {kind} | {len(here)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--corpus", nargs="+", default=["kjv"], choices=list(EPOCHS))
    options.add_argument("--part", default="test", choices=("validation", "test"))
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    for corpus, seed in product(args.corpus, args.seeds):
        key = {"corpus": corpus, "part": args.part, "seed": seed}
        if not args.report and not is_there(PATH, key):
            add(PATH, key | measured(key))
    print(table(recorded(PATH)))


if __name__ == "__main__":
    main()
