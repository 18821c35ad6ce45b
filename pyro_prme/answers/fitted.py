"""What a fitted topic model answers by scikit-learn's conventions: the half of the estimator that does not fit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from pyro_prme.answers.posterior import Posterior
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import LARGEST_COUNT, refuse_other_things, refuse_unsound, sound_csr

__all__ = ["FittedTopicModel", "whole_counts"]


def whole_counts(X: Any) -> sparse.csr_matrix:
    """Canonical float64 counts (N, D); anything but whole numbers from 0 to 2147483647 is refused."""
    counts = sound_csr(X, np.float64, copy=True)
    _refuse_bad_counts(counts)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    _refuse_bad_counts(counts)
    return counts


def _refuse_bad_counts(counts: sparse.csr_matrix) -> None:
    values = counts.data
    good = (values >= 0) & (values == np.floor(values)) & (values <= LARGEST_COUNT)
    if good.all():
        return
    entry = int(np.argmin(good))
    n, d = int(np.searchsorted(counts.indptr, entry, side="right")) - 1, int(counts.indices[entry])
    value = "NaN" if np.isnan(values[entry]) else f"{values[entry]:g}"
    kind = "Negative values in data" if values[entry] < 0 else "X is not a matrix of counts"
    raise ValueError(
        f"{kind}: document {n} has {value} for word {d}, and counts are whole numbers from 0 to {LARGEST_COUNT}."
    )


class FittedTopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of an estimator whose fit leaves a `posterior_` and takes its X through `_counts`."""

    _whole = staticmethod(whole_counts)
    posterior_: Posterior
    n_features_in_: int
    feature_names_in_: np.ndarray

    def transform(self, X: Any) -> np.ndarray:
        """Proportions of the topics in documents (N, D), rows that sum to one, shape (N, K).

        A document without a known word gets the prior's proportions, and a warning counts them.
        """
        check_is_fitted(self)
        counts = self._counts(X, reset=False)
        empty = int((counts.getnnz(axis=1) == 0).sum())
        if empty:
            warnings.warn(
                f"{empty} of {counts.shape[0]} documents have no known word and get the prior's proportions.",
                UserWarning,
                stacklevel=2,
            )
        return self.posterior_.proportions(counts).values

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Word probabilities, shape (N, D), of documents with these proportions of the topics, shape (N, K)."""
        check_is_fitted(self)
        proportions = np.asarray(X, dtype=np.float64)
        if proportions.ndim != 2 or proportions.shape[1] != len(self.components_):
            raise ValueError(f"X has shape {proportions.shape}: it must have one column for each of the topics.")
        return proportions @ self.components_

    def perplexity(self, X: Any, *, observed: float = 0.9, seed: int = 0) -> float:
        r"""Document-completion perplexity of documents (N, D), lower is better.

        .. math::
            \exp\Big(-\frac{\sum_n \sum_d x_{nd} \ln \sum_k \pi_{nk} \theta_{kd}}{\sum_n \sum_d x_{nd}}\Big)

        with x the held-out tokens, pi the proportions given the observed ones, and theta `components_`.

        Args:
            X: documents; those of fewer than two tokens are left out.
            observed: fraction of each document's tokens that the model sees.
            seed: of the split, see `Corpus.split_tokens`.
        """
        check_is_fitted(self)
        words = self.posterior_.vocabulary or tuple(map(str, range(self.n_features_in_)))
        return self.posterior_.perplexity(Corpus(self._counts(X, reset=False), words).split_tokens(observed, seed))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log probability of a held-out token, minus the logarithm of `perplexity`: higher is better."""
        return -float(np.log(self.perplexity(X)))

    @property
    def components_(self) -> np.ndarray:
        return self._posterior().topics().values

    @property
    def topic_usage_(self) -> np.ndarray:
        return self._posterior().usage().values

    @property
    def n_topics_used_(self) -> int:
        return self._posterior().num_topics_used

    def _posterior(self) -> Posterior:
        if not hasattr(self, "posterior_"):
            raise AttributeError("This PRMETopicModel is not fitted yet: call fit or partial_fit first.")
        return self.posterior_

    @property
    def _n_features_out(self) -> int:
        return self.posterior_.num_topics

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    def _counts(self, X: Any, *, reset: bool) -> sparse.csr_matrix:
        """X as checked counts; sets or checks the number and names of the words."""
        if not isinstance(X, Corpus):
            refuse_other_things(X)
            if isinstance(X, np.matrix):
                X = np.asarray(X)
            if sparse.issparse(X):
                refuse_unsound(X)  # before scikit-learn converts it
            if reset:
                self._of_corpus = False
            with warnings.catch_warnings():
                if getattr(self, "_of_corpus", False):  # `corpus.counts` after a fit to the corpus has its words
                    warnings.filterwarnings("ignore", "X does not have valid feature names")
                X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
            return self._whole(X)
        names = np.array(X.vocabulary, dtype=object)
        if reset:
            self._of_corpus = True
            self.n_features_in_, self.feature_names_in_ = X.vocab_size, names
        elif X.vocab_size != self.n_features_in_ or not np.array_equal(
            names, getattr(self, "feature_names_in_", names)
        ):
            raise ValueError(
                "The corpus has other words than the model was fitted to: align it with Corpus.align first."
            )
        return sound_csr(X.counts)  # which a corpus has checked already, and which may be mapped from disk
