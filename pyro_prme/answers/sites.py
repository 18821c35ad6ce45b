"""What was learned about the sites of any model: means, spreads, intervals and draws, with the plates as labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyro
import scipy.sparse
import torch
import xarray as xr
from torch import Tensor

from pyro_prme.answers.moments import Drawn, Moment, deviation_of, drawn, mean_of, quantiles_of
from pyro_prme.checks import fraction, whole
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import refuse_other_things
from pyro_prme.inference.data import Data
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.point import FreePoint
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import alone, default_dtype, evaluating, seeded
from pyro_prme.inference.topic_guide import Counts

__all__ = ["FUNCTION", "OF_FUNCTION", "SYMBOLS", "SitePosterior"]

#: How E-steps are made for answers: until they have converged.
CONVERGED = RunOptions(sweeps=200, word_tolerance=1e-4)

#: What the paper calls the sites of a role: for messages, and for labels of what is written out.
SYMBOLS = {
    "sticks": "V", "topics": "theta", "loadings": "Z", "places": "ell", "embedding": "h", "function": "f"
}  # fmt: skip

#: Roles of the sites of a random function: a model without one is told so by their symbols.
OF_FUNCTION = ("places", "embedding", "function")

#: What an answer that needs f calls it.
FUNCTION = "random function"
_RUNS = 200  # of the model, over which a site is averaged that others decide


class SitePosterior:
    """The half of `Posterior` that knows nothing of topics; its arguments are there.

    Args:
        guide, vocabulary, roles, batch_size: see `Posterior`.
    """

    def __init__(
        self,
        guide: ClosedFormGuide,
        *,
        vocabulary: Iterable[str] | None = None,
        roles: Mapping[str, str] | None = None,
        batch_size: int = 500,
    ) -> None:
        if not isinstance(guide, ClosedFormGuide):
            raise ValueError(f"The guide is a {type(guide).__name__}: give a fitted ClosedFormGuide.")
        self.guide, self.batch_size = guide, whole("batch_size", batch_size)
        self._roles = dict(roles or {})
        self.vocabulary = None if vocabulary is None else tuple(str(word) for word in vocabulary)
        known = getattr(self.model, "vocab_size", None)
        if self.vocabulary is not None and known is not None and len(self.vocabulary) != known:
            raise ValueError(
                f"The vocabulary has {len(self.vocabulary)} words and the model {known}: give one for each."
            )

    @property
    def model(self) -> Any:
        """The guide's model."""
        return self.guide.model

    @property
    def roles(self) -> dict[str, str]:
        """Which site plays which role."""
        return self.guide.roles | self._roles

    def __repr__(self) -> str:
        name = getattr(self.model, "__name__", type(self.model).__name__)
        if not self.guide.is_planned:
            return f"Posterior of {name}: its guide has not been fitted or loaded."
        plan = self.guide.plan()
        entries = [entry for entry in plan.entries.values() if entry.name not in plan.observed]
        role_of = {site: role for role, site in self.roles.items()}
        width = max(len(entry.name) for entry in entries)
        lines = [f"Posterior of {name}, with factors for {len(entries)} sites."]
        for entry in entries:
            role = f" ({role_of[entry.name]})" if entry.name in role_of else ""
            lines.append(f"  {entry.name:<{width}}  {entry.update}{role}")
        return "\n".join([lines[0], *self._headline(), *lines[1:]])

    def _headline(self) -> list[str]:
        """What the printed form says below its first line."""
        return []

    # Any site.

    def mean(self, site: str, documents: Any = None) -> xr.DataArray:
        """E x of a site.

        Args:
            site: its name, or its role.
            documents: for which, if it belongs to them.
        """
        return self._site(site, documents, mean_of)

    def sd(self, site: str, documents: Any = None) -> xr.DataArray:
        """The standard deviation of a site; arguments as `mean`."""
        return self._site(site, documents, deviation_of)

    def interval(self, site: str, documents: Any = None, level: float = 0.9) -> xr.DataArray:
        """The central interval that holds a share `level`, with a first dimension "bound"; arguments as `mean`."""
        tails = (1 - fraction("level", level)) / 2
        found = self._site(site, documents, lambda q: quantiles_of(q, (tails, 1 - tails)), "bound")
        return found.assign_coords(bound=["lower", "upper"])

    def draws(self, site: str, documents: Any = None, number: int = 100, seed: int = 0) -> xr.DataArray:
        """Draws of a site, with a first dimension "draw"; arguments as `mean`."""
        whole("number", number)
        return self._site(site, documents, lambda q: Moment(drawn(q, number), 0), "draw", seed=seed)

    def _site(
        self, site: str, documents: Any, read: Callable[[Any], Moment], *lead: str, seed: int | None = None
    ) -> xr.DataArray:
        """What `read` makes of a site's factor, its dimensions named by its plates."""
        name = self.roles.get(site, site)
        with self._asking(seed):
            if documents is None:
                found = self._whole(name, read)
                node = self.guide.structure.trace.nodes[name]
                shape, plates = node["fn"].batch_shape, node["cond_indep_stack"]
                value, draws = found.value, found.draws
            else:
                runs = []
                for size, args in self._batches(documents):
                    run = self.guide.run(*args, options=CONVERGED)
                    moment = read(run.factor(name))
                    shape, plates = run.sites[name].fn.batch_shape, run.sites[name].plates
                    along = [len(lead) + len(shape) + p.dim for p in plates if p.size != p.full_size or p.size == size]
                    runs.append(moment.value.narrow(along[0], 0, size) if along else moment.value)
                    draws = moment.draws
                value = torch.cat(runs, along[0]) if along else runs[0]
        dims = [f"{name}_{i}" for i in range(value.dim() - len(lead))]
        for plate in plates:
            dims[len(shape) + plate.dim] = plate.name
        array = xr.DataArray(value.double().numpy(), dims=[*lead, *dims])
        if draws:
            array.attrs["draws"] = draws
        if name == self.roles.get("topics") and self.vocabulary is not None:
            array = array.rename({array.dims[-1]: "word"}).assign_coords(word=list(self.vocabulary))
        if isinstance(documents, Corpus) and "documents" in array.dims:
            array = array.assign_coords(documents=list(documents.names))
        return array

    def _whole(self, name: str, read: Callable[[Any], Moment]) -> Moment:
        """A moment of a site that belongs to no documents; of one that others decide, by runs of the model."""
        structure = self.guide.structure
        if name in structure.sites or name not in structure.trace.nodes:
            return read(self.guide.posterior(name))
        args, kwargs = structure.args, structure.kwargs
        values = [self.guide.run(*args, **kwargs).fixed.get(name) for _ in range(_RUNS)]
        drawn_values = [value for value in values if value is not None]
        if not drawn_values:
            raise ValueError(f"{name} is decided by sites with closed forms: ask for these.")
        return Moment(read(Drawn(torch.stack(drawn_values))).value, len(drawn_values))

    # Inside.

    @property
    def topic_factors(self) -> TopicFactors | None:
        """The closed forms for topics and loadings, where the guide has them."""
        if not self.guide.is_planned:
            raise ValueError("The guide has not been fitted or loaded: there is nothing to ask.")
        claims: list[Any] = list(self.guide.claims)
        return next((c for c in claims if isinstance(c, TopicFactors)), None)

    def point(self, role: str) -> np.ndarray | None:
        """The value of the site of a role, where it is a free point in the guide; else None."""
        name = self.roles.get(role)
        claims: list[Any] = list(self.guide.claims)
        found = next((c for c in claims if isinstance(c, FreePoint) and name in c.sites), None)
        return None if found is None else found.value().detach().double().numpy()

    @property
    def vocab_size(self) -> int:
        """D, where the model has topics."""
        known = getattr(self.model, "vocab_size", None)
        return self.guide.structure.value(self._role("topics", "topics")).shape[-1] if known is None else known

    @property
    def dtype(self) -> torch.dtype:
        """Of what was learned."""
        parts = (*self.guide.buffers(), *self.guide.parameters())
        return next((x.dtype for x in parts if x.is_floating_point()), torch.get_default_dtype())

    def has(self, role: str) -> bool:
        """Whether the model has a site of a role."""
        site = self.roles.get(role)
        return site is not None and (not self.guide.is_planned or site in self.guide.structure.trace.nodes)

    def _role(self, role: str, what: str, needs: str = "") -> str:
        """The site of a role."""
        if not self.has(role):
            needs = needs or f"site as its {role}; say which by `roles`"
            name = getattr(self.model, "__name__", type(self.model).__name__)
            called = SYMBOLS[role] if role in OF_FUNCTION else role
            raise ValueError(f"{name} has no {called}: {what} needs a model with a {needs}.")
        return self.roles[role]

    def _labelled(self, values: np.ndarray, *dims: str) -> xr.DataArray:
        words = self.vocabulary or range(values.shape[-1])
        coords = {dim: np.asarray(words) if dim == "word" else np.arange(values.shape[i]) for i, dim in enumerate(dims)}
        return xr.DataArray(values, coords, dims)

    def _corpus(self, documents: Corpus | Any) -> Corpus:
        """The documents as a corpus of the model's vocabulary."""
        if not isinstance(documents, Corpus):
            refuse_other_things(documents)
        counts = documents.counts if isinstance(documents, Corpus) else documents
        shape = np.shape(counts) if not scipy.sparse.issparse(counts) else counts.shape
        if len(shape) == 2 and shape[1] != self.vocab_size:
            raise ValueError(
                f"The documents have {shape[1]} words and the model {self.vocab_size}: give counts of the "
                "model's vocabulary (Corpus.align makes them)."
            )
        if not isinstance(documents, Corpus):
            return Corpus(counts, self.vocabulary or tuple(map(str, range(self.vocab_size))))
        if self.vocabulary is not None and documents.vocabulary != self.vocabulary:
            raise ValueError("The documents have other words than the model: align them with Corpus.align first.")
        return documents

    def _batches(self, documents: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """What the model is called with, and how many rows count: Pyro has no empty plate, so one is given a word."""
        if isinstance(documents, Data) and not isinstance(documents, Corpus | Counts):
            for start in range(0, len(documents), self.batch_size):
                rows = np.arange(start, min(start + self.batch_size, len(documents)))
                yield len(rows), tuple(documents.batch(rows))
            return
        counts = self._corpus(documents).counts
        most = getattr(self.model, "num_documents", counts.shape[0])
        for start in range(0, counts.shape[0], self.batch_size):
            part = counts[start : start + self.batch_size]
            size = part.shape[0]
            if not part.nnz:
                part = scipy.sparse.vstack([part, np.eye(1, counts.shape[1], dtype=part.dtype)], format="csr")
            batch = Batch.of_rows(part)
            yield size, (Batch(batch.documents % most, batch.indptr, batch.word, batch.count),)

    @contextmanager
    def _asking(self, seed: int | None = 0) -> Iterator[None]:
        """Nothing learns, nothing global changes, and one thread runs."""
        store = pyro.get_param_store()
        with (
            alone(),
            torch.no_grad(),
            seeded(0 if seed is None else seed),
            store.scope(store.get_state()),
            default_dtype(self.dtype),
            evaluating(self.model, self.guide),
        ):
            yield

    def ask(self, documents: Any, read: Callable[[Run], Tensor | Moment], dim: str = "topic") -> xr.DataArray:
        """What `read` finds, batch by batch, in a run with a converged E-step: dims (document, `dim`)."""
        if not self.guide.is_planned:
            raise ValueError("The guide has not been fitted or loaded: there is nothing to ask.")
        parts, draws = [], 0
        with self._asking():
            for size, args in self._batches(documents):
                found = read(self.guide.run(*args, options=CONVERGED))
                value = found.value if isinstance(found, Moment) else found
                draws = found.draws if isinstance(found, Moment) else 0
                parts.append(value.reshape(len(value), -1)[:size])
        result = self._labelled(torch.cat(parts).double().numpy(), "document", dim)
        if draws:
            result.attrs["draws"] = draws
        return result.assign_coords(document=list(documents.names)) if isinstance(documents, Corpus) else result
