"""Topic models of documents that repeat their words: topics say which words there are, a layer below how often."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

from pyro_prme.checks import number, positive
from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.restaurant import log_seating, next_word, tables_of
from pyro_prme.models.diln import DILN
from pyro_prme.models.prme import PRME, ShapePRME
from pyro_prme.models.topic_model import HDP, Plates, TopicModel

__all__ = ["OwnWords", "OwnWordsDILN", "OwnWordsHDP", "OwnWordsPRME", "OwnWordsShapePRME", "RepeatedWords"]


class RepeatedWords(TorchDistribution):
    """How often each of a document's words occurs, by its restaurant; see `equations.restaurant.log_seating`.

    The density is that of one order of the tokens, as it is for words. A draw gives the sizes of the tables of a
    restaurant with as many customers as the document has entries, and zeros for the entries that are left over.

    Args:
        document: of each entry, rising, shape (E,).
        tables: of each entry, shape (E,); None for one each.
        concentration: c.
        discount: d.
    """

    arg_constraints: dict = {}  # noqa: RUF012
    support = constraints.nonnegative_integer

    def __init__(self, document: Tensor, tables: Tensor | None, concentration: Any, discount: Any) -> None:
        self.document, self.tables = document, tables
        self.concentration, self.discount = concentration, discount
        super().__init__(document.shape, validate_args=False)

    def of_first(self, entries: int) -> RepeatedWords:
        """The law of the first entries, which are those of the first documents."""
        tables = None if self.tables is None else self.tables[:entries]
        return RepeatedWords(self.document[:entries], tables, self.concentration, self.discount)

    def _tables(self, times: Tensor) -> Tensor:
        return times.clamp(max=1) if self.tables is None else self.tables

    def _of_document(self, x: Tensor) -> Tensor:
        """Sums over the entries of each document, at each of its entries."""
        size = int(self.document[-1]) + 1
        return x.new_zeros(size).index_add_(0, self.document, x)[self.document]

    def _before(self, x: Tensor) -> Tensor:
        """Sums over the entries of the same document that come before each."""
        begun = x.cumsum(0) - x
        first = torch.ones_like(self.document, dtype=torch.bool)
        first[1:] = self.document[1:] != self.document[:-1]
        return begun - begun[first].repeat_interleave(torch.bincount(self.document)[self.document[first]])

    def log_prob(self, value: Tensor) -> Tensor:
        tables = self._tables(value)
        before = self._before(value), self._before(tables)
        return log_seating(value, tables, *before, self.concentration, self.discount)

    def log_left_out(self, times: Tensor, log_base: Tensor, tables_of_rest: Tensor) -> Tensor:
        r"""Log probability of each token given all others of its document, summed over the tokens of each entry.

        .. math:: n_w \ln \frac{n_w - 1 - d t'_w + (c + d (T - t_w + t'_w)) p_0(w)}{N - 1 + c}

        Args:
            times: n_w, shape (E,).
            log_base: ln p_0(w), shape (E,).
            tables_of_rest: t'_w, the tables of the n_w - 1 others, shape (E,).
        """
        tables = self._tables(times)
        rest = self._of_document(times) - 1, self._of_document(tables) - tables + tables_of_rest
        others = (times - 1).clamp(min=0)  # an entry without tokens counts nothing
        return times * next_word(others, tables_of_rest, *rest, log_base.exp(), self.concentration, self.discount).log()

    def log_hidden(self, seen: Tensor, hidden: Tensor, log_base: Tensor, tables: Tensor) -> Tensor:
        r"""Log probability of hidden tokens given those that are seen, each by `equations.restaurant.next_word`, (E,).

        Args:
            seen, hidden: tokens of each entry, shape (E,).
            log_base: ln p_0(w) given the seen tokens, shape (E,).
            tables: of the seen tokens, shape (E,).
        """
        rest = self._of_document(seen), self._of_document(tables)
        return hidden * next_word(seen, tables, *rest, log_base.exp(), self.concentration, self.discount).log()

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        sizes = torch.zeros(self.document.shape)
        c, d = float(self.concentration), float(self.discount)
        for n in self.document.unique():
            here = (self.document == n).nonzero().squeeze(-1)
            own = torch.zeros(len(here))
            num = 0
            for seated in range(len(here)):
                weights = torch.cat([own[:num] - d, torch.tensor([c + d * num])])
                at = int(torch.multinomial(weights, 1)) if seated else 0
                own[at] += 1
                num = max(num, at + 1)
            sizes[here] = own
        return sizes

    def expand(self, batch_shape: Any, _instance: Any = None) -> RepeatedWords:
        if torch.Size(batch_shape) != self.batch_shape:
            raise ValueError("The words of a batch are as many as they are: they cannot be expanded.")
        return self


class OwnWords(TopicModel):
    r"""A document layer between topics and words: a word that was used once is used again.

    Each document is a Pitman-Yor restaurant whose tables have words from the document's topics, and whose customers are
    its tokens:

    .. math::
        G_n \sim \mathrm{PY}(d, c, \textstyle\sum_k \pi_{nk} \theta_k), \quad X_{nm} \sim G_n, \qquad
        \pi_n = Z_n / \textstyle\sum_k Z_{nk}

    G_n is integrated out, and the tables are taken to be known from the counts (`equations.restaurant.tables_of`), so
    that topics have the closed forms of any topic model, for tables in the place of tokens. With `growth` = 0 a word
    has one table, and topics explain which words appear. What comes next is `equations.restaurant.next_word`.

    Put it before the model that it changes, as in ``class OwnWordsHDP(OwnWords, HDP)``. Sites and shapes: those of the
    model, with C and X for tables; R (E), how often each word occurs; own_discount and own_concentration.

    Args:
        args, kwargs: of the class that this one goes before.
        own_discount: d, between 0 and 1, or a prior of it. The default is learned.
        own_concentration: c, positive, or a prior of it. The default is learned.
        growth: g of the tables. The default did best on validation documents (`benchmarks/paper/NOTES.md`).
    """

    own_discount: float | Tensor
    own_concentration: float | Tensor

    def __init__(
        self,
        *args: Any,
        own_discount: float | Distribution | None = None,
        own_concentration: float | Distribution | None = None,
        growth: float = 0.75,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.growth = number("growth", growth, least=0, most=1)
        discount = dist.Beta(torch.tensor(2.0), torch.tensor(2.0)) if own_discount is None else own_discount
        prior = dist.Gamma(torch.tensor(2.0), torch.tensor(0.04))
        self.set_number("own_discount", discount, partial(number, above=0, below=1))
        self.set_number("own_concentration", prior if own_concentration is None else own_concentration, positive)

    @property
    def roles(self) -> Mapping[str, str]:
        return {**super().roles, "repeats": "R"}

    def prepare(self, batch: Batch) -> Batch:
        """Documents with their tables as counts, and their tokens as `Batch.times`."""
        if batch.word is None or batch.times is not None:
            return batch
        return batch.counting(self.tables)

    def tables(self, count: Tensor) -> Tensor:
        """The tables of words that occur so often, see `equations.restaurant.tables_of`."""
        return tables_of(count, self.growth)

    def likelihood(self, Z: Tensor, theta: Tensor, plates: Plates, batch: Batch) -> Tensor:
        """How often words occur, and at which words their tables are, shape (E,)."""
        if not batch.num_entries:
            return super().likelihood(Z, theta, plates, batch)
        with pyro.plate("repeats", batch.num_entries, dim=-1), poutine.scale(scale=self.num_documents / batch.size):
            R = self.sample_R(batch)
        if batch.word is not None:
            return super().likelihood(Z, theta, plates, batch)
        with poutine.mask(mask=R > 0):  # type: ignore[call-overload]  # the entries for which no table was opened say nothing
            return super().likelihood(Z, theta, plates, batch)

    def sample_R(self, batch: Batch) -> Tensor:
        """How often each word occurs, shape (E,); observed where the batch has words."""
        tables = None if batch.word is None else batch.count
        law = RepeatedWords(batch.document, tables, self.own_concentration, self.own_discount)
        return pyro.sample("R", law, obs=batch.times)


class OwnWordsHDP(OwnWords, HDP):
    """An `HDP` with own words."""


class OwnWordsDILN(OwnWords, DILN):
    """A `DILN` with own words."""


class OwnWordsPRME(OwnWords, PRME):
    """A `PRME` with own words."""


class OwnWordsShapePRME(OwnWords, ShapePRME):
    """A `ShapePRME` with own words."""
