"""Schedules of an online pass on validation documents of arxiv: what the default for large corpora was chosen by.

    python benchmarks/paper/schedule.py

fits 144,000 abstracts with each setting and scores 3,000 others, of which 90% of the words are seen; K = 100, batches
of 500, one seed. Adds each fit to results/schedule.json and prints the table.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from experiment import DATA, RESULTS, add, is_there, parser, recorded

import pyro_prme as prme
from pyro_prme.inference.build import PRESETS
from pyro_prme.inference.session import session

PATH = RESULTS / "schedule.json"
VALIDATION = 3000

#: delay, decay, cooling, passes
WANTED = [
    (100.0, 0.75, 0.0, 1),
    (100.0, 0.75, 0.3, 1),
    (10.0, 0.75, 0.3, 1),
    (100.0, 0.6, 0.3, 1),
    (1000.0, 0.75, 0.0, 1),
    (1000.0, 0.6, 0.3, 1),
    (300.0, 0.75, 0.0, 1),
    (1000.0, 0.75, 0.0, 2),
    (1000.0, 0.6, 0.3, 2),
    (100.0, 0.75, 0.0, 2),
]


def run(delay: float, decay: float, cooling: float, passes: int) -> dict[str, Any]:
    """Perplexity of the validation documents and seconds of training."""
    corpus = prme.load_corpus(DATA / "arxiv" / "train.ldac.gz")
    train, validation = corpus.split(VALIDATION, seed=0)
    split = validation.split_tokens(0.9, seed=0)
    preset = PRESETS["default"]
    build = {name: value for name, value in preset.items() if name != "learning_rate"}
    began = time.perf_counter()
    with session():
        guide = prme.build(100, train.vocab_size, len(train), **build)[1]
        options = prme.TrainOptions(
            "online", delay=delay, decay=decay, cooling=cooling, learning_rate=preset["learning_rate"]
        )
        trainer = prme.Trainer(guide, prme.Counts(train.counts), options)
        trainer.fit(passes)
        spent = time.perf_counter() - began
        posterior = prme.Posterior(guide, vocabulary=train.vocabulary)
        return {"perplexity": posterior.perplexity(split), "seconds": spent, "used": posterior.num_topics_used}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--most", type=int, default=len(WANTED), help="fits to run")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    keys = [dict(zip(("delay", "decay", "cooling", "passes"), values, strict=True)) for values in WANTED]
    for key in [] if args.report else [key for key in keys if not is_there(PATH, key)][: args.most]:
        add(PATH, key | run(**key))
    for r in sorted(recorded(PATH), key=lambda r: (r["passes"], r["perplexity"])):
        print(
            f"{r['passes']} passes, delay {r['delay']:g}, decay {r['decay']:g}, cooling {r['cooling']:g}: "
            f"{r['perplexity']:.1f}, {r['used']} topics, {r['seconds']:.0f} s"
        )


if __name__ == "__main__":
    main()
