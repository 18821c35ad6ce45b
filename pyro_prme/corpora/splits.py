"""Held-out words: open this to split documents for a score, or to hand the same split to another program."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from pyro_prme.checks import fraction, whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import counts_arrays, counts_from_arrays
from pyro_prme.corpora.files import compressed_npz, open_npz, read_bytes, write_whole

__all__ = ["ORDINARY_COUNT", "ORDINARY_TOKENS", "TokenSplit", "token_split"]

#: The tokens of larger documents are not shuffled one by one, nor of those with more than `ORDINARY_COUNT` a word.
ORDINARY_TOKENS = 1_000_000
ORDINARY_COUNT = 1000


@dataclass(frozen=True, eq=False)
class TokenSplit:
    """Two corpora with the same documents: the tokens a model may see, and the ones it is scored on.

    Args:
        observed: tokens to condition on; a short document may have none.
        held_out: tokens to predict; at least one in each document.
        documents: rows of the corpus that was split, shape (observed.num_documents,).
    """

    observed: Corpus
    held_out: Corpus
    documents: np.ndarray

    def save(self, path: str | Path) -> None:
        """Write the split to one npz file.

        Its arrays are ``vocabulary``, ``names``, ``documents``, and the CSR arrays ``data``, ``indices``, ``indptr``
        and ``shape`` of each part under the prefixes ``observed_`` and ``held_out_``.
        """
        arrays = {
            "vocabulary": np.array(self.observed.vocabulary),
            "names": np.array(self.observed.names),
            "documents": self.documents,
        }
        for part in ("observed", "held_out"):
            for key, array in counts_arrays(getattr(self, part).counts).items():
                arrays[f"{part}_{key}"] = array
        write_whole({Path(path): compressed_npz(arrays)})

    @classmethod
    def load(cls, path: str | Path) -> TokenSplit:
        """Read what ``save`` wrote."""
        arrays = open_npz(read_bytes(Path(path)), path)
        missing = [key for key in ("vocabulary", "names", "documents") if key not in arrays]
        if missing:
            raise ValueError(f"{path} lacks the array {missing[0]!r}: it is no saved token split")
        corpora = []
        for prefix in ("observed_", "held_out_"):
            part = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            counts = counts_from_arrays(part, path)
            try:
                corpora.append(Corpus(counts, tuple(arrays["vocabulary"]), tuple(arrays["names"])))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}: {error}") from None
        documents = arrays["documents"]
        if documents.shape != (len(corpora[0]),) or documents.dtype.kind not in "iu":
            raise ValueError(f"{path} does not name one row for each of its documents: write the split again")
        return cls(corpora[0], corpora[1], documents)


def token_split(corpus: Corpus, observed: float, seed: int) -> TokenSplit:
    """See ``Corpus.split_tokens``."""
    fraction("observed", observed)
    whole("seed", seed, 0)
    documents = np.flatnonzero(corpus.lengths >= 2)
    if documents.size == 0:
        raise ValueError("no document has two tokens, so none can be split: give longer documents")
    held_out_fraction = round(1 - observed, 12)  # 1 - 0.9 is a little less than 0.1, and would round 1.5 down
    rng = np.random.default_rng(seed)
    kept = corpus.counts[documents]
    held = np.zeros_like(kept.data)
    for start, end in itertools.pairwise(kept.indptr):
        counts = kept.data[start:end]
        tokens = int(counts.sum(dtype=np.int64))
        num_held = max(1, round(held_out_fraction * tokens))
        ordinary = tokens <= min(ORDINARY_TOKENS, ORDINARY_COUNT * counts.size)
        held[start:end] = (_shuffled if ordinary else _drawn)(counts, num_held, rng)
    names = tuple(corpus.names[int(n)] for n in documents)
    parts = [
        Corpus(scipy.sparse.csr_array((data, kept.indices, kept.indptr), shape=kept.shape), corpus.vocabulary, names)
        for data in (kept.data - held, held)
    ]
    return TokenSplit(parts[0], parts[1], documents)


def _shuffled(counts: np.ndarray, num_held: int, rng: np.random.Generator) -> np.ndarray:
    """How often each word is among the first `num_held` of a document's shuffled tokens."""
    tokens = rng.permutation(np.repeat(np.arange(counts.size), counts))
    return np.bincount(tokens[:num_held], minlength=counts.size)


def _drawn(counts: np.ndarray, num_held: int, rng: np.random.Generator) -> np.ndarray:
    r"""The same law, multivariate hypergeometric, without unfolding the tokens.

    Each token is taken with probability num_held / tokens, so binomially by word. Given how many were taken, all sets
    of that size are equally likely, and they stay so when as many tokens as there are too many are given back, or as
    many as are missing are taken, each set of them equally likely: about the square root of the tokens.
    """
    counts = counts.astype(np.int64)
    taken = rng.binomial(counts, num_held / int(counts.sum()))
    surplus = int(taken.sum()) - num_held
    pool, sign = (taken, -1) if surplus > 0 else (counts - taken, 1)
    if surplus:
        tokens = rng.choice(int(pool.sum()), abs(surplus), replace=False, shuffle=False)
        words = np.searchsorted(pool.cumsum(), tokens, side="right")
        taken = taken + sign * np.bincount(words, minlength=counts.size)
    return taken
