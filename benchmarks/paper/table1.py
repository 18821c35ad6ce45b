"""Held-out perplexity of HDP, DILN and PRME (paper, Table 1), and at fewer observed words.

    python benchmarks/paper/table1.py --corpus nyt --gamma0 0.2 --seeds 0 1 2

reads ../shared/data beside the project, adds each fit to results/table1.json as it ends (a fit that is there already is
not run again), and prints the table. K = 100, a = b = 1, alpha = 1, beta = 5, as the paper; the library's defaults for
the rest. Nothing is chosen on the test documents.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

import pyro_prme as prme
from pyro_prme.posterior import Posterior

DATA = Path(__file__).parents[3] / "shared" / "data"
RESULTS = Path(__file__).parent / "results" / "table1.json"
OBSERVED = (0.9, 0.5, 0.1)
PAPER = {  # gamma0 = 0.2, 0.4, 0.6, 0.8; its New York Times articles are others than ours
    "nyt": {
        "hdp": (2436.51, 2464.74, 2482.61, 2501.82),
        "diln": (2231.16, 2295.12, 2418.16, 2509.24),
        "prme": (2203.00, 2247.25, 2299.60, 2338.38),
    },
    "20news": {
        "hdp": (5317.68, 5845.90, 6294.68, 6665.68),
        "diln": (5164.93, 5732.12, 6143.64, 6389.99),
        "prme": (5102.08, 5531.04, 5878.39, 5975.12),
    },
    "nips": {
        "hdp": (1973.39, 1962.90, 1981.83, 2009.58),
        "diln": (1853.89, 1902.88, 1944.90, 1947.94),
        "prme": (1753.61, 1850.37, 1917.21, 1953.85),
    },
}


def load(name: str) -> tuple[prme.Corpus, prme.Corpus]:
    """Train and test documents; of 20news without stop words and one-letter words."""
    parts = [prme.load_corpus(DATA / name / f"{part}.ldac.gz") for part in ("train", "test")]
    if name == "20news":
        dropped = {*ENGLISH_STOP_WORDS, *(word for word in parts[0].vocabulary if len(word) == 1)}
        train = parts[0].restrict(stop_words=dropped)
        return train, parts[1].align(train.vocabulary)[0]
    return parts[0], parts[1]


def run(corpus: str, model: str, gamma0: float, seed: int, epochs: int) -> dict:
    """Fits one model and scores it."""
    train, test = load(corpus)
    began = time.perf_counter()
    program, guide = prme.build(100, train.vocab_size, len(train), model=model, gamma0=gamma0, seed=seed)
    trainer = prme.Trainer(program, guide, train.counts, seed=seed)
    trainer.fit(epochs)
    seconds = time.perf_counter() - began
    posterior = Posterior(program, guide, vocabulary=train.vocabulary)
    scores = {str(observed): posterior.perplexity(test.split_tokens(observed, seed=0)) for observed in OBSERVED}
    return {
        "corpus": corpus,
        "model": model,
        "gamma0": gamma0,
        "seed": seed,
        "epochs": epochs,
        "perplexity": scores,
        "topics_used": int(posterior.num_topics_used),
        "bound": trainer.history[-1]["bound"],
        "seconds": seconds,
        "version": prme.__version__,
    }


def table(results: list[dict]) -> str:
    """Mean over seeds, with the spread (largest less smallest) where there are several."""
    lines = [
        "| corpus | gamma0 | model | seeds | 90% | 50% | 10% observed | paper, 90% |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keys = sorted({(r["corpus"], r["gamma0"], r["model"]) for r in results})
    for corpus, gamma0, model in keys:
        here = [r for r in results if (r["corpus"], r["gamma0"], r["model"]) == (corpus, gamma0, model)]
        cells = []
        for observed in OBSERVED:
            values = np.array([r["perplexity"][str(observed)] for r in here])
            spread = f" ({np.ptp(values):.0f})" if len(values) > 1 else ""
            cells.append(f"{values.mean():.1f}{spread}")
        paper = PAPER.get(corpus, {}).get(model)
        theirs = f"{paper[round(gamma0 / 0.2) - 1]:.0f}" if paper and round(gamma0 / 0.2) in (1, 2, 3, 4) else ""
        lines.append(f"| {corpus} | {gamma0} | {model} | {len(here)} | {' | '.join(cells)} | {theirs} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs="+", default=["nyt"], choices=sorted(PAPER))
    parser.add_argument("--model", nargs="+", default=["hdp", "diln", "prme"])
    parser.add_argument("--gamma0", nargs="+", type=float, default=[0.2])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    for corpus in args.corpus:
        for gamma0 in args.gamma0:
            for seed in args.seeds:
                for model in args.model:
                    key = {"corpus": corpus, "model": model, "gamma0": gamma0, "seed": seed, "epochs": args.epochs}
                    if any(all(r[k] == v for k, v in key.items()) for r in results):
                        continue
                    results.append(run(**key))
                    print(json.dumps(results[-1]), flush=True)
                    RESULTS.parent.mkdir(exist_ok=True)
                    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
