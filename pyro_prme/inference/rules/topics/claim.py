"""Factors of loadings, assignments and topics by compiled sweeps (eq. update_z, update_c, update_eta)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from pyro import distributions as dist
from scipy import sparse
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy import Factors, Structure
from pyro_prme.conjugacy.families import Gamma
from pyro_prme.conjugacy.families.base import unwrapped
from pyro_prme.conjugacy.program import Program, site_terms
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.counts import sound_csr
from pyro_prme.equations.bounds import (
    dirichlet_term,
    elog_sum_epsilon,
    elog_sum_particles,
    elog_sum_quadrature,
    point_topics_term,
)
from pyro_prme.equations.expectations import expected_log_rows
from pyro_prme.inference.claims import SolvedClaim
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.topics.forms import ChoiceForm, NotThisForm, WordForm, choice_form, word_form
from pyro_prme.inference.topic_starts import STARTS, start_table
from pyro_prme.kernels import LocalStep, local_step
from pyro_prme.kernels.gamma import DigammaRows, add_rows_, natural_step_, sum_of_rows
from pyro_prme.kernels.sums import inner
from pyro_prme.models.distributions import ImpliedAssignment, WordMajorDirichlet, WordMajorPoint

if TYPE_CHECKING:
    from pyro_prme.inference.rules.topics.rule import Topics
    from pyro_prme.inference.run import Run

__all__ = ["Documents", "Reading", "TopicFactors"]

_TOKENS_A_DOCUMENT = 10.0  # weight of a cluster in gamma, times the documents a topic has on average


class Documents(NamedTuple):
    """What a run found for the documents of a batch."""

    batch: Batch
    step: LocalStep
    elog_theta: Tensor  # (W, K), of the batch's distinct words
    weight: float  # of a document: N / B and the like
    place: Tensor | None  # of each of the batch's tokens among the model's, where those are not sorted by document


class Reading(NamedTuple):
    """What a run says of the documents before anything is solved."""

    batch: Batch
    weight: float
    place: Tensor | None
    elog_theta: Tensor | None


class TopicFactors(SolvedClaim):
    """q(Z), q(C) and q(theta), where gamma is kept word-major.

    Args:
        rule: whose options hold.
        structure: of the model.
        words: name of the observed site.
        roles: names of the others.
    """

    gamma: Tensor
    total: Tensor
    pending: Tensor

    def __init__(self, rule: Topics, structure: Structure, words: str, roles: Mapping[str, str]) -> None:
        super().__init__()
        self.rule, self.roles, self.words = rule, dict(roles), words
        self.sites = (roles["loadings"], roles["assignment"], roles["topics"])
        self.covered = (words, roles["assignment"], roles["topics"])
        self.slow = (roles["topics"],)
        self.normalised = structure.families[roles["loadings"]].title == Gamma.title
        self.bounds_a_sum = self.normalised
        prior = self._prior_of(structure.trace.nodes[roles["topics"]]["fn"])
        draw = structure.value(roles["topics"]).reshape(prior.shape)
        self.register_buffer("gamma", (prior + 100 * draw).mT.contiguous())
        self.register_buffer("total", sum_of_rows(self.gamma).to(self.gamma.dtype))
        self.register_buffer("pending", torch.zeros_like(self.gamma), persistent=False)
        self._met = torch.zeros(self.gamma.shape[1], dtype=torch.float64)
        self._digamma = DigammaRows()
        self._prior = prior
        self._first = structure.run_sites, structure.args

    @staticmethod
    def _prior_of(fn: Any) -> Tensor:
        """gamma0 of each topic, shape (K, D)."""
        base = unwrapped(fn)
        concentration = base.concentration.detach()
        shape = fn.shape()
        sizes = [n for n in shape[:-1] if n != 1]
        if len(sizes) > 1:
            raise NotThisForm("topics have more than two dimensions")
        return concentration.expand(shape).reshape(*(sizes or [1]), shape[-1])

    def title(self, name: str) -> str:
        if name == self.roles["topics"]:
            what = "a point on the scale of log ratios" if self.rule.points else "Dirichlet"
            return f"closed form, {what}, natural steps (compiled)"
        if name == self.roles["assignment"]:
            return "closed form, Categorical, implied (compiled)"
        return f"closed form, {'Gamma' if self.normalised else 'Dirichlet'}, for each batch (compiled)"

    def topics_posterior(self) -> Distribution:
        """q(theta), with rows of words at hand."""
        if self.rule.points:
            return WordMajorPoint(self.gamma, self.total)
        return WordMajorDirichlet(self.gamma, self.total, self._digamma)

    def tokens(self) -> Tensor:
        """Tokens of each topic in the data, as q(theta) has them: the sum over words of gamma - gamma0, (K,)."""
        return (self.gamma.double() - self.prior()).sum(0)

    def mean_rows(self, words: Tensor) -> Tensor:
        """E theta of some words, word-major, (W, K)."""
        return self.topics_posterior().mean_rows(words)  # type: ignore[attr-defined]

    @torch.no_grad()
    def solve(
        self,
        sites: Mapping[str, Site],
        factors: Factors,
        options: RunOptions,
        args: Sequence[Any] = (),
        tolerance: float | None = None,
        read: Reading | None = None,
    ) -> dict[str, Documents]:
        """The E-step: loadings and assignments of the batch's documents, given all other factors.

        Args:
            sites: of the run.
            factors: of all other sites.
            options: of the run.
            args: what the model was called with; a batch among them is used as it is.
            tolerance: instead of the rule's.
            read: what `read` has found, if it is known already.
        """
        name = self.roles["loadings"]
        held, before = options.held.get(name), options.started.get(name)
        if held is None:
            self._prior = self._prior_of(sites[self.roles["topics"]].fn)
        if held is not None and any(arg is held.batch for arg in args):  # what was read of it before still holds
            read = Reading(held.batch, held.weight, held.place, None)
        batch, weight, place, rows = read or self.read(sites, args)
        concentration, rate = self.prior_of_loadings(factors.program, factors)
        if tolerance is None:
            tolerance = self.rule.tolerance if options.word_tolerance is None else options.word_tolerance
        if held is None:
            elog_theta = self.elog_rows(batch) if rows is None else rows
            step = local_step(
                *(batch.indptr, batch.local_word, batch.count, elog_theta, concentration, rate),
                max_sweeps=options.sweeps or self.rule.max_sweeps,
                tolerance=tolerance,
                start=None if before is None else (before.step.concentration, before.step.rate),
                by_mean=self.rule.by_mean,
            )
            found = Documents(batch, step, elog_theta, weight, place)
        else:
            a = concentration + held.step.counts
            slope = (batch.length / held.step.epsilon).unsqueeze(-1)
            step = held.step._replace(concentration=a, rate=(rate + slope).expand_as(a))
            found = held._replace(batch=batch, step=step, weight=weight, place=place)
        family = factors.program.families[name]
        factors.elsewhere[name] = lambda: self.loadings_statistics(found, family)
        factors.elsewhere[self.roles["topics"]] = self._topics_statistics
        return {name: found}

    def read(self, sites: Mapping[str, Site], args: Sequence[Any]) -> Reading:
        """The documents of a run; where E ln theta of their words is left out, `solve` finds it."""
        if self.words not in sites:  # no document of the batch has words
            loadings = sites[self.roles["loadings"]]
            size, weight = loadings.fn.shape()[0], float(loadings.weight.reshape(-1)[0])
            nothing = torch.zeros(0, dtype=torch.int64)
            empty = Batch(torch.arange(size), torch.zeros(size + 1, dtype=torch.int64), nothing, torch.zeros(0))
            return Reading(empty, weight, None, None)
        words = word_form(site_terms(sites[self.words])[1])
        choice = choice_form(site_terms(sites[self.roles["assignment"]])[1], words)
        batch, weight, place = batch_of(words, choice, sites[self.roles["loadings"]], args)
        return Reading(batch, weight, place, None)

    def elog_rows(self, batch: Batch) -> Tensor:
        """E ln theta of a batch's distinct words, (W, K)."""
        return expected_log_rows(self.topics_posterior(), torch.empty(0), batch.words)

    def factor(self, name: str, run: Run) -> Distribution:
        """q of the topics, of the documents' loadings, or of the choices, implied by the two."""
        found: Documents = run.local[self.roles["loadings"]]
        if name == self.roles["topics"]:
            return self.topics_posterior()
        step, shape = found.step, run.sites[name].fn.shape()
        if name == self.roles["assignment"]:
            batch = found.batch
            document, word = batch.document, batch.local_word
            if found.place is not None:
                back = torch.argsort(found.place)
                document, word = document[back], word[back]
            return ImpliedAssignment(step.elog_loadings, found.elog_theta, document, word)
        if self.normalised:
            return dist.Gamma(step.concentration.reshape(shape), step.rate.reshape(shape), validate_args=False)
        return dist.Dirichlet(step.concentration.reshape(shape), validate_args=False)

    def _topics_statistics(self) -> dict[str, Tensor]:
        """E ln theta of all words: a table of topics and vocabulary, which only a report asks for."""
        if self.rule.points:
            return {"log": (self.gamma / self.total).log().mT}
        return {"log": (self.gamma.digamma() - self.total.digamma()).mT}

    def prior_of_loadings(self, program: Program, factors: Factors) -> tuple[Tensor, Tensor]:
        """Concentration and rate that everything but the words asks for, each broadcastable to (B, K)."""
        name = self.roles["loadings"]
        family = program.families[name]
        natural = program.target(name, factors.statistics(), family.empty())
        rows = (-1, family.shape[-1])
        if not self.normalised:
            concentration = (natural["log"] + 1).reshape(rows)
            return concentration, torch.ones_like(concentration)
        return (natural["log"] + 1).reshape(rows), (-natural["x"]).reshape(rows)

    def loadings_statistics(self, documents: Documents, family: Any) -> dict[str, Tensor]:
        """E ln Z and E Z of the batch's documents."""
        a, rate = documents.step.concentration, documents.step.rate
        if not self.normalised:
            elog = a.digamma() - a.sum(-1, keepdim=True).digamma()
            return {"log": elog.reshape(family.shape)}
        return {
            "log": (a.digamma() - rate.log()).reshape(family.shape),
            "x": (a / rate).reshape(family.shape),
        }

    # As the engine has it: for comparison on a prototype.

    def statistics_on(self, documents: Documents, program: Program) -> dict[str, dict[str, Tensor]]:
        """The expected statistics of all three sites, those of the choices in full."""
        loadings, assignment, topics = (self.roles[role] for role in ("loadings", "assignment", "topics"))
        of_loadings = self.loadings_statistics(documents, program.families[loadings])
        of_topics = self._topics_statistics()
        batch, elog = documents.batch, of_loadings["log"].reshape(documents.step.counts.shape)
        logits = elog[batch.document] + of_topics["log"].mT[batch.word]
        phi = logits.softmax(-1)
        if documents.place is not None:
            phi = torch.empty_like(phi).index_copy_(0, documents.place, phi)
        family = program.families[assignment]
        shape = family.empty()["chosen"].shape
        of_topics = {"log": of_topics["log"].reshape(program.families[topics].shape)}
        return {loadings: of_loadings, topics: of_topics, assignment: {"chosen": phi.reshape(shape)}}

    def natural_on(self, name: str, documents: Documents, family: Any) -> dict[str, Tensor]:
        """Natural parameters of the loadings as they stand, or of the topics that these ask for."""
        step = documents.step
        if name == self.roles["loadings"]:
            found = {"log": (step.concentration - 1).reshape(family.shape)}
            return found | ({"x": -step.rate.reshape(family.shape)} if self.normalised else {})
        counts = torch.zeros_like(self.gamma)
        add_rows_(counts, documents.batch.words, step.statistics, documents.weight)
        return {"log": (self._prior + counts.mT - 1).reshape(family.shape)}

    # The bound.

    def terms(self, run: Run, names: Sequence[str]) -> dict[str, Tensor]:
        found, program, factors = run.local[self.roles["loadings"]], run.factors.program, run.factors
        of: dict[str, Callable[[], Tensor]] = {
            self.roles["topics"]: lambda: self._topics_term(run.sites),
            self.roles["loadings"]: lambda: self.loadings_term(program, factors, found) - self._counts_again(found),
            self.roles["assignment"]: lambda: self._assignment_term(found, run.options.bound),
            self.words: lambda: found.weight * inner(found.step.statistics, self._elog_theta(run, found)),
        }
        return {name: of[name]() for name in names}

    def objective(self, run: Run) -> dict[str, Tensor]:
        found = run.local[self.roles["loadings"]]
        prior = unwrapped(run.sites[self.roles["topics"]].fn).concentration
        nothing = torch.zeros(())
        return {
            self.roles["loadings"]: self._loadings_objective(run, found),
            self.roles["topics"]: self._topics_term(run.sites) if prior.requires_grad else nothing,
            self.roles["assignment"]: nothing,
            self.words: nothing,
        }

    def _loadings_objective(self, run: Run, found: Documents) -> Tensor:
        """What moves whatever decides the loadings; see `Topics.objective` and `Topics.by_mean`."""
        name, program, factors = self.roles["loadings"], run.factors.program, run.factors
        if self.rule.objective == "plain":
            return program.at(name, factors.statistics())
        held = run.options.held.get(name)
        if not self.rule.by_mean or held is None:
            return self.loadings_term(program, factors, found)
        with torch.no_grad():
            concentration, rate = self.prior_of_loadings(program, factors)
            batch, before = found.batch, held.step
            step = local_step(
                *(batch.indptr, batch.local_word, batch.count, found.elog_theta, concentration, rate),
                max_sweeps=1,
                start=(before.concentration, before.rate),
            )
        sharp = found._replace(step=found.step._replace(counts=step.counts))
        return self.loadings_term(program, factors, sharp)

    def _elog_theta(self, run: Run, found: Documents) -> Tensor:
        """E ln theta of the batch's words as it is now: a held phi may have been formed under another q(theta)."""
        return self.elog_rows(found.batch) if self.roles["loadings"] in run.options.held else found.elog_theta

    def _topics_term(self, sites: Mapping[str, Site]) -> Tensor:
        site = sites[self.roles["topics"]]
        prior = unwrapped(site.fn).concentration
        prior = prior.expand(site.fn.shape()).reshape(self.gamma.shape[1], self.gamma.shape[0]).mT
        each = point_topics_term(prior, self.gamma) if self.rule.points else dirichlet_term(prior, self.gamma)
        return (each * site.weight.reshape(-1)).sum()

    def loadings_term(self, program: Program, factors: Factors, found: Documents) -> Tensor:
        r"""The part of the bound that holds Z, with q(Z) maximised out (`bounds.profiled_loadings`), up to the counts.

        .. math:: \ln\Gamma(c_{nk} + n_{nk}) - (c_{nk} + n_{nk}) \ln(r_{nk} + M_n / \epsilon_n)

        and the terms of the prior that are free of Z.
        """
        name = self.roles["loadings"]
        concentration, rate = self.prior_of_loadings(program, factors)
        step, statistics = found.step, factors.statistics()
        plain, terms = program.parts[name]
        value = plain + sum(t.value(statistics, (), None) for t in terms if name not in t.names)
        a = concentration + step.counts
        if self.normalised:
            whole = rate + self._slope(found)
            return value + found.weight * (a.lgamma() - a * whole.log()).sum()
        return value + found.weight * (a.lgamma().sum() - a.sum(-1).lgamma().sum())

    def _slope(self, found: Documents) -> Tensor:
        """M_n / epsilon_n, shape (B, 1)."""
        return (found.batch.length / found.step.epsilon).unsqueeze(-1)

    def _counts_again(self, found: Documents) -> Tensor:
        """What the profiled form has in it of the words: n E ln Z - slope E Z."""
        step = found.step
        a, rate = step.concentration, step.rate
        if not self.normalised:
            return found.weight * (step.counts * (a.digamma() - a.sum(-1, keepdim=True).digamma())).sum()
        elog = a.digamma() - rate.log()
        return found.weight * (step.counts * elog - self._slope(found) * (a / rate)).sum()

    def _assignment_term(self, found: Documents, bound: str) -> Tensor:
        """E ln p(C | Z) + H[q(C)], from the words' log-normalisers; `bound` says what stands for E ln sum Z."""
        step, batch = found.step, found.batch
        entropy = (
            inner(batch.count, step.log_normalizer)
            - inner(step.counts, step.elog_loadings)
            - inner(step.statistics, found.elog_theta)
        )
        a, rate = step.concentration, step.rate
        if not self.normalised:
            elog = a.digamma() - a.sum(-1, keepdim=True).digamma()
            return found.weight * (entropy + (step.counts * elog).sum(dtype=torch.float64))
        elog = (step.counts * (a.digamma() - rate.log())).sum(dtype=torch.float64)
        if bound == "quadrature":
            elog_sum = elog_sum_quadrature(a, rate)
        elif bound == "particles":
            elog_sum = elog_sum_particles(a, rate).double()
        else:
            elog_sum = elog_sum_epsilon((a / rate).double(), step.epsilon.double())
        return found.weight * (entropy + elog - (batch.length.double() * elog_sum).sum())

    # Starts.

    def begin(self, data: Any, start: str, seed: int) -> None:
        """Topics near those of the words, where the data have counts of them."""
        if hasattr(data, "counts") and data.counts.shape[1] == self.gamma.shape[0]:
            start_table(self, sound_csr(data.counts), start, np.random.default_rng(seed))

    # Natural steps.

    @torch.no_grad()
    def gather(self, run: Run, share: float = 1.0) -> None:
        """Adds the counts of a run to those pending for the next natural step."""
        found: Documents = run.local[self.roles["loadings"]]
        self._met += found.step.counts.sum(0)
        add_rows_(self.pending, found.batch.words, found.step.statistics, share * found.weight)

    def tokens_met(self) -> Tensor:
        """Tokens of each topic in the documents met since this was last asked, (K,)."""
        met, self._met = self._met, torch.zeros_like(self._met)
        return met

    def pending_parts(self) -> dict[str, Tensor]:
        return {"counts": self.pending}

    def restore_pending(self, parts: Mapping[str, Tensor]) -> None:
        if parts.keys() != {"counts"} or parts["counts"].shape != self.pending.shape:
            raise ValueError("The counts that are pending are not those of these words and topics.")
        self.pending.copy_(parts["counts"])

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        """Moves gamma towards the target of the pending counts, and forgets these (eq. stochastic_update_eta)."""
        prior = self._prior.mT
        shared = prior.stride(1) == 0 or bool((prior == prior[:, :1]).all())
        total = natural_step_(self.gamma, self.pending, prior[:, :1] if shared else prior, rate)
        self.total.copy_(total)

    def prior(self) -> Tensor:
        """gamma0 as the model had it last, word-major, broadcastable to (D, K)."""
        return self._prior.mT

    @property
    def table_shape(self) -> tuple[int, int]:
        """D and K."""
        return self.gamma.shape[0], self.gamma.shape[1]

    @torch.no_grad()
    def restart(self, generator: torch.Generator) -> None:
        """Topics from clusters of the documents that the plan was made on; random ones where these are too few."""
        batch, weight, _, _ = self.read({site.name: site for site in self._first[0]}, self._first[1])
        num_words, num_topics = self.table_shape
        rows = (batch.count.numpy(), batch.word.numpy(), batch.indptr.numpy())  # type: ignore[union-attr]
        counts = sparse.csr_matrix(rows, shape=(batch.size, num_words), copy=True)  # not the batch's own memory
        counts.sum_duplicates()
        rng = np.random.default_rng(int(torch.randint(2**31 - 1, (), generator=generator)))
        enough = int((np.diff(counts.indptr) > 0).sum()) >= num_topics
        centres = STARTS["kmeans" if enough else "random"](counts, num_topics, rng).centres
        behind = _TOKENS_A_DOCUMENT * weight * batch.size / num_topics
        noise = rng.gamma(1.0, 0.1, size=centres.shape)
        self.begin_from(torch.as_tensor(centres), behind, torch.as_tensor(noise))

    def begin_from(self, centres: Tensor, weight: float, noise: Tensor) -> None:
        """Topics round centres, worth so many tokens.

        Args:
            centres: shape (K, D), rows that sum to one.
            weight: tokens behind each centre.
            noise: tokens, added to each cell, (K, D).
        """
        self.set(self.prior() + (weight * centres + noise).mT.to(self.gamma.dtype))

    @torch.no_grad()
    def set(self, gamma: Tensor) -> None:
        """Replaces gamma, word-major (D, K), and forgets the pending counts."""
        self.gamma.copy_(gamma)
        self.total.copy_(sum_of_rows(self.gamma))
        self.pending.zero_()


def batch_of(
    words: WordForm, choice: ChoiceForm, loadings: Site, args: Sequence[Any] = ()
) -> tuple[Batch, float, Tensor | None]:
    """The tokens as documents of words and counts, what a document counts, and how tokens were sorted, if they were."""
    weight = loadings.weight
    if weight.dim() and not bool((weight == weight.reshape(-1)[0]).all()):
        raise ValueError("Documents have different weights: give all documents of a batch one scale.")
    one = float(weight.reshape(-1)[0])
    count = (words.weight / one).to(torch.get_default_dtype()).expand(len(words.word))
    whole = count.round()
    if not torch.allclose(count, whole, rtol=1e-4, atol=0):
        raise ValueError("Words count a fraction of what their documents count: give both the same scale.")
    count = whole
    num = loadings.fn.shape()[0]
    for arg in args:
        if not isinstance(arg, Batch) or not torch.equal(arg.count, count):
            continue
        if _is_same(arg.word, words.word) and _is_same(arg.document, choice.document):
            return arg, one, None
    order, word, place = choice.document, words.word, None
    if bool((order.diff() < 0).any()):
        place = torch.argsort(order, stable=True)
        order, word, count = order[place], word[place], count[place]
    indptr = torch.zeros(num + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(order, minlength=num).cumsum(0)
    return Batch(torch.arange(num), indptr, word, count.contiguous()), one, place


def _is_same(a: Tensor | None, b: Tensor) -> bool:
    """Whether two vectors are the same memory."""
    return a is not None and a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()
