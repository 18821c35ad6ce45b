"""What three parts gain that we wrote ourselves although torch has something for the purpose.

    python benchmarks/own_parts.py [--rounds 20]
    python benchmarks/own_parts.py --report

At the size of 20 Newsgroups (training_step.py): `LazyAdam` against `torch.optim.SparseAdam` on a table of word vectors
as wide as the paper's; the decoder's layers with batch norm folded into the next weights against the same layers as
torch modules, forward and backward; and these layers in memory that is used again against fresh memory at each step.
Both sides of a pair give the same numbers, which is asserted before time is taken. They take turns; each shows its
fastest round.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from corpora import natural_corpus
from measuring import circumstances, markdown
from torch import Tensor
from training_step import BATCH, TOKENS, TOPICS, WORDS

from pyro_prme import Decoder
from pyro_prme.inference.lazy_adam import LazyAdam
from pyro_prme.kernels.buffers import Buffers

RESULTS = Path(__file__).parent / "results" / "own_parts.json"
WIDTH, DIMENSION = 1000, 20  # of the paper's first layer, and of h and ell

#: Two ways to do the same, each a function that does it once and returns numbers that both must agree on.
Pair = tuple[Callable[[], Tensor], Callable[[], Tensor]]


def optimisers(documents: int = BATCH, vocab_size: int = WORDS, width: int = WIDTH) -> Pair:
    """A step of each optimiser on the rows of a batch's words."""
    counts = natural_corpus(documents, vocab_size, TOKENS)
    words = torch.from_numpy(np.unique(counts.indices).astype(np.int64))
    gradient = torch.randn(len(words), width)

    def stepping(kind: type[torch.optim.Optimizer]) -> Callable[[], Tensor]:
        table = torch.nn.Parameter(torch.zeros(vocab_size, width))
        optimiser = kind([table], lr=1e-3)

        def step() -> Tensor:
            table.grad = torch.sparse_coo_tensor(
                words[None], gradient, table.shape, is_coalesced=True, check_invariants=False
            )
            optimiser.step()
            return table.detach()[words[:10]]

        return step

    return stepping(LazyAdam), stepping(torch.optim.SparseAdam)


def decoders(documents: int = BATCH, topics: int = TOPICS) -> tuple[Pair, Pair]:
    """Forward and backward of the decoder's layers: ours against modules, and in kept against fresh memory."""
    decoder = Decoder(topics, DIMENSION, DIMENSION).train()
    h, ell = torch.randn(documents, DIMENSION), torch.randn(topics, DIMENSION)

    def gradient_of(rows: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        decoder.zero_grad()
        rows(decoder.from_h(h), decoder.from_ell(ell)).square().sum().backward()
        found = decoder.from_h.weight.grad
        return torch.zeros(()) if found is None else found.clone()

    def of_modules(x: Tensor, y: Tensor) -> Tensor:
        pairs = (x.unsqueeze(-2) + y).flatten(0, 1).relu()
        return decoder.head(decoder.stack(decoder.norm(pairs))).unflatten(0, (documents, topics))

    def ours() -> Tensor:
        return gradient_of(decoder.rows)

    def fresh() -> Tensor:
        with mock.patch.object(Buffers, "empty", lambda self, shape, like: like.new_empty(shape)):
            return gradient_of(decoder.rows)

    return (ours, lambda: gradient_of(of_modules)), (ours, fresh)


def milliseconds(pair: Pair, rounds: int) -> tuple[float, float]:
    """The fastest round of each of a pair; they take turns."""
    torch.testing.assert_close(pair[0](), pair[1](), rtol=1e-3, atol=1e-3)
    times = np.full((rounds, 2), np.inf)
    for row in times:
        for i, action in enumerate(pair):
            begin = time.perf_counter()
            action()
            row[i] = 1e3 * (time.perf_counter() - begin)
    fastest = times.min(0)
    return float(fastest[0]), float(fastest[1])


def measured(rounds: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of ours and of the other, by what is compared."""
    torch.manual_seed(0)
    folded, kept = decoders()
    pairs = {
        "Adam on rows of a table: LazyAdam, SparseAdam": optimisers(),
        "decoder: batch norm folded, torch modules": folded,
        "decoder: memory used again, fresh memory": kept,
    }
    return {name: milliseconds(pair, rounds) for name, pair in pairs.items()}


def text(found: dict[str, tuple[float, float]]) -> str:
    """The numbers as a table."""
    rows = [[name, f"{own:.1f}", f"{other:.1f}", f"{other / own:.2f}"] for name, (own, other) in found.items()]
    return markdown(["milliseconds", "ours", "the other", "times"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--report", action="store_true", help="measure nothing: print what is there")
    options = parser.parse_args()
    if not options.report:
        result = {"circumstances": circumstances(), "milliseconds": measured(options.rounds)}
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(text(json.loads(RESULTS.read_text())["milliseconds"]))


if __name__ == "__main__":
    main()
