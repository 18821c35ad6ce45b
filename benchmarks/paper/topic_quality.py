"""Chimeras: pairs of topics that are nearly the same, and topics whose words do not go together in test documents.

    python -m benchmarks.paper.topic_quality --corpus snippets nyt 20news nips_1987_1999 --seeds 0 1

Of the topics in use (those that together hold 99% of the tokens), K = 100: pairs that share five or more of their ten
top words, topics with a negative NPMI over the ten top words in test documents, mean NPMI, and the diversity of the 25
top words. tomotopy's LDA has 200 sweeps with the alpha and eta that scored best for it on nyt. "start ..." is the
default from another start; choices between starts are made with --part validation, which scores too. Results grow in
results/topic_quality.json.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch

import pyro_prme as prme
from benchmarks.paper.experiment import RESULTS, add, is_there, parser, recorded, scores
from benchmarks.paper.kept_runs import EPOCHS, corpus_parts, kept_run
from pyro_prme.answers.scores import npmi_coherence, topic_diversity

PATH = RESULTS / "topic_quality.json"
MODELS: dict[str, dict[str, str]] = {
    "default": {"preset": "default"},
    "predictive": {"preset": "predictive"},
    "dirichlet": {"preset": "dirichlet"},
    "start random": {"preset": "default", "start": "random"},
    "start documents": {"preset": "default", "start": "documents"},
    "tomotopy": {},
}
_SWEEPS = 200
_LDA = {"alpha": 0.02, "eta": 0.05}


def of_tomotopy(train: prme.Corpus, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Topics (K, D) and their tokens (K,) of a Gibbs sampler's last state."""
    import tomotopy

    sampler = tomotopy.LDAModel(k=100, seed=seed, **_LDA)
    counts = train.counts.tocsr()
    for n in range(counts.shape[0]):
        part = slice(counts.indptr[n], counts.indptr[n + 1])
        sampler.add_doc([str(word) for word in np.repeat(counts.indices[part], counts.data[part])])
    sampler.train(_SWEEPS, workers=1)
    topics = np.zeros((100, train.vocab_size))
    topics[:, [int(word) for word in sampler.used_vocabs]] = [sampler.get_topic_word_dist(k) for k in range(100)]
    return topics, np.array(sampler.get_count_by_topics(), dtype=float)


def quality(topics: np.ndarray, usage: np.ndarray, test: prme.Corpus) -> dict[str, float]:
    """Counts and scores of the topics in use."""
    order, shares = np.argsort(-usage, kind="stable"), np.sort(usage / usage.sum())[::-1]
    used = topics[order[: int(np.searchsorted(shares.cumsum(), 0.99) + 1)]]
    top = np.argsort(-used, axis=1, kind="stable")[:, :10]
    member = np.zeros((len(used), topics.shape[1]))
    np.put_along_axis(member, top, 1.0, 1)
    shared = (member @ member.T)[np.triu_indices(len(used), 1)]
    npmi = npmi_coherence(used, test, 10)
    return {
        "used": len(used),
        "pairs": int((shared >= 5).sum()),
        "negative": int((npmi < 0).sum()),
        "npmi": float(npmi.mean()),
        "diversity": topic_diversity(used, 25),
    }


def measured(key: dict[str, Any]) -> dict[str, Any]:
    """Fits one model and counts."""
    train, test = corpus_parts(key["corpus"], key["part"])
    if key["model"] == "tomotopy":
        return quality(*of_tomotopy(train, key["seed"]), test)
    posterior = kept_run(key["corpus"], key["part"], seed=key["seed"], **MODELS[key["model"]])
    found = quality(posterior.topics().values, posterior.usage().values, test)
    return found | ({"perplexity": scores(posterior, test)} if key["part"] == "validation" else {})


def table(records: list[dict[str, Any]]) -> str:
    """One row a corpus and model: means over seeds."""
    names = ("used", "pairs", "negative", "npmi", "diversity")
    lines = ["| corpus | model | seeds | in use | pairs | negative | NPMI | diversity | 90 / 50 / 10% |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|---|")
    for part, corpus, model in sorted({(r["part"], r["corpus"], r["model"]) for r in records}):
        here = [r for r in records if (r["part"], r["corpus"], r["model"]) == (part, corpus, model)]
        cells = [f"{np.mean([r[name] for r in here]):.3g}" for name in names]
        scored = [list(r["perplexity"].values()) for r in here if "perplexity" in r]
        text = " / ".join(f"{x:.0f}" for x in np.mean(scored, 0)) if scored else ""
        lines.append(f"| {corpus}, {part} | {model} | {len(here)} | {' | '.join(cells)} | {text} |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--corpus", nargs="+", default=["snippets"], choices=list(EPOCHS))
    options.add_argument("--models", nargs="+", default=["default", "tomotopy"], choices=list(MODELS))
    options.add_argument("--part", default="test", choices=("validation", "test"))
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    for corpus, seed, model in product(args.corpus, args.seeds, args.models):
        key = {"corpus": corpus, "part": args.part, "model": model, "seed": seed}
        if not args.report and not is_there(PATH, key):
            add(PATH, key | measured(key))
    print(table(recorded(PATH)))


if __name__ == "__main__":
    main()
