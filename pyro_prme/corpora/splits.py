"""Held-out words: open this to split documents for a score, or to hand the same split to another program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from pyro_prme.checks import fraction, whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import counts_arrays, counts_from_arrays
from pyro_prme.corpora.files import compressed_npz, open_npz, read_bytes, write_whole

__all__ = ["ORDINARY_COUNT", "ORDINARY_TOKENS", "TokenSplit", "drawn_counts", "token_split"]

#: The tokens of larger documents are not shuffled one by one, nor of those with more than `ORDINARY_COUNT` a word.
ORDINARY_TOKENS = 1_000_000
#: The same, for each of its different words.
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

    def part(self, documents: range) -> TokenSplit:
        """The split of some of its documents, by their places in it."""
        here = slice(documents.start, documents.stop)
        return TokenSplit(self.observed[here], self.held_out[here], self.documents[here])

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
            raise ValueError(f"{path} lacks the array {missing[0]!r}: it is no saved token split.")
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
            raise ValueError(f"{path} does not name one row for each of its documents: write the split again.")
        if not corpora[1].lengths.all():
            raise ValueError(f"{path} has a document of which no word is held out: write the split again.")
        return cls(corpora[0], corpora[1], documents)


def token_split(corpus: Corpus, observed: float, seed: int) -> TokenSplit:
    """See ``Corpus.split_tokens``."""
    fraction("observed", observed)
    whole("seed", seed, 0)
    documents = np.flatnonzero(corpus.lengths >= 2)
    if documents.size == 0:
        raise ValueError("No document has two tokens, so none can be split: give longer documents.")
    held_out_fraction = round(1 - observed, 12)  # 1 - 0.9 is a little less than 0.1, and would round 1.5 down
    rng = np.random.default_rng(seed)
    kept = corpus.counts[documents]
    entries = np.diff(kept.indptr)
    document = np.repeat(np.arange(documents.size), entries)  # (nnz,)
    tokens = corpus.lengths[documents]
    num_held = np.maximum(1, [round(held_out_fraction * int(length)) for length in tokens])
    ordinary = tokens <= np.minimum(ORDINARY_TOKENS, ORDINARY_COUNT * entries)
    held = np.zeros_like(kept.data)
    for n in np.flatnonzero(ordinary):
        part = slice(kept.indptr[n], kept.indptr[n + 1])
        held[part] = _shuffled(kept.data[part], num_held[n], rng)
    large = ~ordinary[document]
    held[large] = drawn_counts(kept.data[large], document[large], num_held, rng)
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


def drawn_counts(
    counts: np.ndarray, document: np.ndarray, num_held: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    r"""How often each word is among tokens drawn from its document, without unfolding the tokens.

    The law is multivariate hypergeometric, that of the first tokens after a shuffle. Each token is taken with
    probability num_held / tokens, so binomially by word. Given how many were taken, all sets of that size are equally
    likely, and they stay so when about as many tokens as there are too many are given back, or as are missing are
    taken, each again with the same probability: and so on, until the numbers are right.

    Args:
        counts: of the entries, shape (entries,).
        document: of each entry, shape (entries,).
        num_held: tokens to draw from each document.
        rng: where the draws come from.
    """
    counts = counts.astype(np.int64)
    taken = np.zeros_like(counts)
    while True:
        missing = num_held - _sums(taken, document, num_held.size)
        wrong = missing[document] != 0
        if not wrong.any():
            return taken
        need = missing[document[wrong]]
        pool = np.where(need > 0, counts[wrong] - taken[wrong], taken[wrong])
        share = np.abs(need) / _sums(pool, document[wrong], num_held.size)[document[wrong]]
        taken[wrong] += np.sign(need) * rng.binomial(pool, share)


def _sums(values: np.ndarray, document: np.ndarray, documents: int) -> np.ndarray:
    return np.rint(np.bincount(document, values, documents)).astype(np.int64)
