"""The library's models under generic Pyro: the same program, and a mean-field guide that moves by gradients alone."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyro
import torch
from corpora import natural_corpus
from pyro import distributions as dist
from pyro.distributions import constraints
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.infer import Trace_ELBO, TraceEnum_ELBO, TraceMeanField_ELBO, config_enumerate
from pyro.nn import PyroModule, PyroParam
from torch import Tensor, nn

import pyro_prme as prme
from pyro_prme.inference.session import evaluating

NETWORK_RATE = 2e-3  # of Adam for networks, as in the library


class MarginalWord(TorchDistribution):
    """A word with its topic summed out, sum over k of proportions_nk theta_kx; it builds an entries x topics table.

    Args:
        proportions: shape (B, K).
        theta: shape (K, D).
        document: row of each entry's document, shape (E,).
    """

    arg_constraints: dict = {}  # noqa: RUF012
    support = constraints.nonnegative_integer

    def __init__(self, proportions: Tensor, theta: Tensor, document: Tensor) -> None:
        self.proportions, self.theta, self.document = proportions, theta, document
        super().__init__(document.shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        return (self.proportions[self.document] * self.theta.mT[value]).sum(-1).log()

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        raise NotImplementedError("Words are observed here.")

    def expand(self, batch_shape: Any, _instance: Any = None) -> MarginalWord:
        return self


def summed_out(kind: type[prme.PRME]) -> type[prme.PRME]:
    """The same model with C summed out by hand, for `Trace_ELBO`."""

    class SummedOut(kind):  # type: ignore[valid-type, misc]
        def sample_C(self, Z: Tensor, batch: prme.Batch) -> Tensor:
            return Z / Z.sum(-1, keepdim=True)

        def sample_X(self, C: Tensor, theta: Tensor, batch: prme.Batch) -> Tensor:
            return pyro.sample("X", MarginalWord(C, theta, batch.document), obs=batch.word)

    return SummedOut


class MeanField(PyroModule):
    """What a user of Pyro would write by hand: the families of the library's guide, with free parameters.

    V, ell and h are points as there, so that both bounds have the same terms for them, and q(f) = p(f).

    Args:
        model: an `HDP` or a `PRME`.
        guide: of the library, on another model of the same sizes; where it stands now is where this one starts.
        batch: all documents, as tokens.
    """

    def __init__(self, model: prme.PRME, guide: prme.PRMEGuide, batch: prme.Batch) -> None:
        super().__init__("mean_field")  # a prefix: sites and parameters have names of their own
        self._model = [model]  # not a submodule
        with torch.no_grad(), evaluating(guide.model, guide):
            step = guide.run(batch).local["Z"].step
        self.gamma = PyroParam(guide.topics.gamma.mT.clone(), constraints.positive)  # (K, D)
        self.V = PyroParam(guide.claim("V").value().detach().clone(), constraints.unit_interval)
        self.concentration = PyroParam(step.concentration.clone(), constraints.positive)  # (N, K)
        self.rate = PyroParam(step.rate.clone(), constraints.positive)
        self.encoder: nn.Module | None = None
        if "embedding" in guide.roles:
            self.encoder = copy.deepcopy(guide.claim("h").encoder)
            for module in self.encoder.modules():
                if isinstance(module, nn.Embedding):
                    module.sparse = False  # plain Adam takes no sparse gradients
            self.ell = nn.Parameter(guide.claim("ell").value().detach().clone())

    def forward(self, batch: prme.Batch) -> None:
        model, topics = self._model[0], pyro.plate("topics", self.gamma.shape[0], dim=-1)
        if self.encoder is not None:
            with topics:
                ell = pyro.sample("ell", dist.Delta(self.ell, event_dim=1))
        with pyro.plate("sticks", len(self.V), dim=-1):
            pyro.sample("V", dist.Delta(self.V))
        with topics:
            pyro.sample("theta", dist.Dirichlet(self.gamma))
        with pyro.plate("documents", model.num_documents, subsample=batch.documents, dim=-2):
            if self.encoder is not None:
                h = pyro.sample("h", dist.Delta(self.encoder(batch).unsqueeze(-2), event_dim=1))
            with topics:
                if self.encoder is not None:
                    mean, variance = model.decode(h, ell)
                    pyro.sample("f", dist.Normal(mean, variance.sqrt()))
                pyro.sample("Z", dist.Gamma(self.concentration, self.rate))


def decoder_of(model: nn.Module) -> dict[str, nn.Module]:
    """The decoder as a keyword, where the model has one."""
    return {"decoder": model.decoder} if hasattr(model, "decoder") else {}


def generic_objective(name: str, model: prme.PRME, guide: nn.Module) -> nn.Module:
    """Minus the ELBO of one draw as a module: "TraceEnum_ELBO" sums the topics out, for "Trace_ELBO" the model must."""
    if name == "TraceEnum_ELBO":
        return TraceEnum_ELBO(max_plate_nesting=2)(config_enumerate(model), guide)
    return Trace_ELBO()(model, guide)


@torch.no_grad()
def summed_bound(model: prme.PRME, guide: MeanField, batch: prme.Batch, particles: int = 10) -> float:
    """The ELBO with C summed out: the one bound that every state here is scored with.

    The words' likelihood is by draws of Z and theta; the divergences of q from p are exact. By draws they would not be
    right in float32, where a Gamma variable of small shape underflows, and a fit can come to exploit that.
    """
    size = model.num_topics, model.vocab_size, model.num_documents
    other = summed_out(type(model))(*size, **decoder_of(model))
    objective = TraceMeanField_ELBO()(other, guide)
    return -float(torch.stack([objective(batch) for _ in range(particles)]).mean())


class GradientNoise(NamedTuple):
    """Of the gradient in some parameters: its norm, and the root of the total variance of one draw, relative to it."""

    norm: float
    deviation: float
    distance: float  # between the mean of the draws and a reference, relative to the latter


def gradient_noise(
    loss: Callable[[], Tensor], parameters: list[Tensor], draws: int, reference: Tensor | None = None
) -> tuple[GradientNoise, Tensor]:
    """Mean and spread of the gradient over calls of a loss."""

    def gradient() -> Tensor:
        parts = torch.autograd.grad(loss(), parameters)
        return torch.cat([part.detach().double().flatten() for part in parts])

    found = torch.stack([gradient() for _ in range(draws)])
    mean = found.mean(0)
    reference = mean if reference is None else reference
    deviation = (found - mean).square().sum(-1).sum() / (draws - 1)
    size = reference.norm()
    return GradientNoise(float(size), float(deviation.sqrt() / size), float((mean - reference).norm() / size)), mean


class Sizes(NamedTuple):
    """Of the corpus that both are given: enumeration takes a few GiB for it."""

    documents: int = 1000
    words: int = 5000
    topics: int = 100
    tokens: int = 100


class Always:
    """One batch of all documents, whichever rows are asked for.

    Args:
        documents: the batch.
    """

    def __init__(self, documents: prme.Batch) -> None:
        self._documents = documents

    def __len__(self) -> int:
        return self._documents.size

    def batch(self, rows: np.ndarray) -> tuple[prme.Batch]:
        """The batch."""
        return (self._documents,)


class Pair:
    """Documents as entries and as tokens, and the library's model, guide and trainer at their start.

    PRME is here the paper's form with an encoder on words, and without batch norm, so that its value does not depend
    on how often it was run. The start is the mean of a few documents for each topic.
    """

    def __init__(self, kind: str, sizes: Sizes) -> None:
        pyro.settings.set(module_local_params=True)
        self.counts = natural_corpus(sizes.documents, sizes.words, sizes.tokens)
        documents = np.split(np.repeat(self.counts.indices, self.counts.data.astype(int)), self._ends())
        self.tokens = prme.Batch.from_tokens([words.tolist() for words in documents])
        design: dict[str, Any] = {"form": "scale", "encoder": "words", "batch_norm": False, "word_dropout": 0.0}
        size = sizes.topics, sizes.words, sizes.documents
        self.model, self.guide = prme.build(*size, model=kind, **design)
        self.trainer = prme.Trainer(self.guide, prme.Counts(self.counts), start="documents")
        self.guide.after_epoch(self.trainer.data)

    def _ends(self) -> np.ndarray:
        return np.asarray(self.counts.sum(1)).ravel().astype(int).cumsum()[:-1]

    def mean_field(self, name: str) -> tuple[nn.Module, prme.PRME, MeanField]:
        """An objective of generic Pyro from where the library's guide stands, its model and its guide."""
        model = self.model
        if name == "Trace_ELBO":
            size = model.num_topics, model.vocab_size, model.num_documents
            model = summed_out(type(model))(*size, **decoder_of(model))
        guide = MeanField(model, self.guide, self.tokens)
        return generic_objective(name, model, guide), model, guide


def generic_fit(kind: str, name: str, sizes: Sizes, budget: float, rate: float) -> dict[str, Any]:
    """Seconds of a step, and the bound against seconds of training; scoring is not counted."""
    pair = Pair(kind, sizes)
    objective, model, guide = pair.mean_field(name)
    networks = {id(p) for m in (guide.encoder, *decoder_of(model).values()) if m is not None for p in m.parameters()}
    groups = [[p for p in objective.parameters() if (id(p) in networks) == wanted] for wanted in (False, True)]
    optimizer = torch.optim.Adam([{"params": groups[0], "lr": rate}, {"params": groups[1], "lr": NETWORK_RATE}])
    curve = [{"seconds": 0.0, "bound": summed_bound(pair.model, guide, pair.tokens)}]
    steps: list[float] = []
    while sum(steps) < budget:
        began = time.perf_counter()
        optimizer.zero_grad()
        objective(pair.tokens).backward()
        optimizer.step()
        steps.append(time.perf_counter() - began)
        if sum(steps) > 1.1 * curve[-1]["seconds"] or sum(steps) >= budget:
            curve.append({"seconds": sum(steps), "bound": summed_bound(pair.model, guide, pair.tokens)})
    return {
        "model": kind,
        "elbo": name,
        "tokens": pair.tokens.num_entries,
        "milliseconds": 1e3 * float(np.median(steps)),
        "steps": len(steps),
        "curve": curve,
    }


def our_fit(kind: str, sizes: Sizes, budget: float, target: float) -> dict[str, Any]:
    """The same of ours: seconds of a step on all documents, as entries and as tokens, and epochs up to a bound."""
    pair = Pair(kind, sizes)
    times: dict[str, float] = {}
    for form, batch in {"tokens": pair.tokens, "entries": prme.Batch.from_csr(pair.counts)}.items():
        fresh = Pair(kind, sizes)
        fresh.trainer.data = Always(batch)
        steps = []
        for _ in range(12):
            began = time.perf_counter()
            fresh.trainer.step(np.arange(batch.size))
            fresh.guide.topics.natural_step(1.0)
            steps.append(time.perf_counter() - began)
        times[form] = 1e3 * float(np.median(steps))
    curve: list[dict[str, float]] = []
    seconds, bound = 0.0, float("-inf")
    while seconds < budget and bound < target:
        began = time.perf_counter()
        pair.trainer.epoch()
        seconds += time.perf_counter() - began
        if not curve or seconds > 1.05 * curve[-1]["seconds"] or seconds >= budget:
            bound = summed_bound(pair.model, MeanField(pair.model, pair.guide, pair.tokens), pair.tokens)
            curve.append({"seconds": seconds, "bound": bound})
    return {"model": kind, "milliseconds": times, "curve": curve}


def noise(
    kind: str, sizes: Sizes, elbos: tuple[str, ...], dtype: str = "float32", epochs: int = 5, draws: int = 20
) -> list[dict[str, Any]]:
    """How noisy the gradient is in V and in the decoder's weights, for the same q: ours has no draws in it."""
    torch.set_default_dtype(getattr(torch, dtype))
    pair = Pair(kind, sizes)
    pair.trainer.fit(epochs)
    with torch.no_grad(), evaluating(pair.model, pair.guide):
        held = prme.RunOptions(held=pair.guide.run(pair.tokens).local)
    groups = {
        "V": [pair.guide.claim("V").free],
        "decoder": [p for m in decoder_of(pair.model).values() for p in m.parameters()],
    }
    rows = []
    for group, parameters in groups.items():
        if not parameters:
            continue
        facts = {"model": kind, "in": group, "dtype": dtype}
        found, reference = gradient_noise(lambda: -pair.guide.run(pair.tokens, options=held).bound(), parameters, 2)
        rows.append(facts | {"gradient": "ours", "draws": 2, **found._asdict()})
        for name in elbos:
            objective, _, guide = pair.mean_field(name)
            theirs = [guide.V_unconstrained] if group == "V" else parameters
            found, _ = gradient_noise(partial(objective, pair.tokens), theirs, draws, reference)
            rows.append(facts | {"gradient": name, "draws": draws, **found._asdict()})
    return rows
