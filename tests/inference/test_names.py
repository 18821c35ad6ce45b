"""Names of sites decide nothing, and neither does what else has been imported."""

from __future__ import annotations

import ast
import random
import string
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyro
import pytest
import torch
from pyro import distributions as dist
from pyro.poutine.messenger import Messenger
from torch import Tensor

import pyro_prme
from pyro_prme import DILN, HDP, PRME, BagOfWordsEncoder, ShapePRME
from pyro_prme.answers.sites import SYMBOLS
from pyro_prme.corpora.batch import Batch
from pyro_prme.inference import ClosedFormGuide, FitOptions, fit
from pyro_prme.inference.topic_guide import PRMEGuide
from pyro_prme.models.priors import FiniteDirichletPRME, LogNormalPRME, PitmanYorPRME
from tests.conftest import DOCUMENTS
from tests.conjugacy.models import CASES

OPTIONS = FitOptions(epochs=4, tolerance=0.0, progress=False)
PAPERS = ["f", "V", "Z", "theta", "C", "X", "ell", "h"]


class Renamed(Messenger):
    """Gives sites other names before anything else sees them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self.names = names

    def _pyro_sample(self, msg: Any) -> None:
        msg["name"] = self.names.get(msg["name"], msg["name"])


def renamed(model: Callable, names: Mapping[str, str]) -> Callable:
    def run(*args: Any, **kwargs: Any) -> Any:
        with Renamed(names):
            return model(*args, **kwargs)

    return run


def others(names: list[str], seed: int) -> dict[str, str]:
    """Random names, in an order of the alphabet that has nothing to do with the old one."""
    rng = random.Random(seed)
    return {name: "".join(rng.choices(string.ascii_letters, k=9)) for name in names}


def plan_and_bound(guide: ClosedFormGuide, args: tuple) -> tuple[list[tuple], list[float]]:
    pyro.set_rng_seed(1)
    history = fit(guide, *args, options=OPTIONS).history
    entries = [(e.name, e.prior, e.update, e.family, e.reason, e.children) for e in guide.plan().entries.values()]
    return entries, [record["bound"] for record in history]


def as_named(entries: list[tuple], names: Mapping[str, str]) -> list[tuple]:
    """A plan with the sites under other names."""

    def text(words: str) -> str:
        return " ".join(names.get(w.strip(",;:"), w.strip(",;:")) for w in words.split())

    return [
        (names[n], p, text(u), f, text(r), tuple(names[c] for c in children)) for n, p, u, f, r, children in entries
    ]


def same(model: Callable, args: tuple, names: Mapping[str, str], make: Callable = ClosedFormGuide) -> None:
    first, bounds = plan_and_bound(make(model), args)
    second, again = plan_and_bound(make(renamed(model, names)), args)
    assert as_named(first, names) == as_named(second, {name: name for name in names.values()})
    assert bounds == pytest.approx(again, rel=1e-12)


def sites_of(model: Callable, args: tuple) -> list[str]:
    return list(ClosedFormGuide(model).plan(*args).entries)


@pytest.mark.parametrize(
    "name", ["normal_gamma", "mixture", "lda", "pca", "dp_mixture", "additive_rates", "hidden_markov"]
)
def test_random_names(name: str) -> None:
    case = CASES[name]
    args = case.args()
    same(case.model, args, others(sites_of(case.model, args), 3))


@pytest.mark.parametrize("name", ["regression", "lda", "mixture", "gamma_gamma_poisson", "beside_logistic"])
def test_the_papers_names_in_wrong_roles(name: str) -> None:
    case = CASES[name]
    args = case.args()
    sites = sites_of(case.model, args)
    for shift in (0, 3):
        same(case.model, args, dict(zip(sites, PAPERS[shift:] + PAPERS[:shift], strict=False)))


def batch() -> Batch:
    return Batch.from_tokens(DOCUMENTS)


SIZES: dict[str, Any] = {"num_topics": 4, "vocab_size": 10, "num_documents": 4}
TOPICS: dict[str, Callable[[], Any]] = {
    "PRME": lambda: PRME(**SIZES, h_dim=3, ell_dim=2),
    "ShapePRME": lambda: ShapePRME(**SIZES, h_dim=3, ell_dim=2),
    "DILN": lambda: DILN(**SIZES),
    "HDP": lambda: HDP(**SIZES),
    "PitmanYorPRME": lambda: PitmanYorPRME(**SIZES, h_dim=3, ell_dim=2),
    "FiniteDirichletPRME": lambda: FiniteDirichletPRME(**SIZES, h_dim=3, ell_dim=2),
    "LogNormalPRME": lambda: LogNormalPRME(**SIZES, h_dim=3, ell_dim=2),
}


def topic_model(name: str, names: Mapping[str, str]) -> Any:
    """The model with its sites, and its own table of roles, under other names."""
    torch.manual_seed(0)
    model = TOPICS[name]()
    kind = type(model)

    def forward(self: Any, *args: Any) -> Any:
        with Renamed(names):
            return kind.forward(self, *args)

    roles = {role: names.get(site, site) for role, site in model.roles.items()}
    model.__class__ = type(kind.__name__, (kind,), {"forward": forward, "roles": roles})
    return model


def topic_guide(model: Any) -> PRMEGuide:
    torch.manual_seed(0)
    encoder = BagOfWordsEncoder(10, 3) if isinstance(model, LogNormalPRME) else None  # it has no topics of words
    return PRMEGuide(model, encoder)


@pytest.mark.parametrize("name", TOPICS)
def test_topic_models_under_random_names(name: str) -> None:
    sites = list(topic_guide(topic_model(name, {})).plan(batch()).entries)
    names = others(sites, 5)
    first, bounds = plan_and_bound(topic_guide(topic_model(name, {})), (batch(),))
    second, again = plan_and_bound(topic_guide(topic_model(name, names)), (batch(),))
    assert as_named(first, names) == as_named(second, {n: n for n in names.values()})
    assert bounds == pytest.approx(again, rel=1e-12)


SCRIPT = """
import importlib, pkgutil, sys
import torch, pyro
torch.set_default_dtype(torch.float64)
import pyro_prme
if sys.argv[1] == "all":
    for found in pkgutil.walk_packages(pyro_prme.__path__, "pyro_prme."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
from pyro_prme.inference import ClosedFormGuide, FitOptions, fit
from tests.conjugacy.models import CASES
for name in ("normal_gamma", "lda", "beside_logistic"):
    pyro.set_rng_seed(0)
    args = CASES[name].args()
    guide = ClosedFormGuide(CASES[name].model)
    bound = fit(guide, *args, options=FitOptions(epochs=5, progress=False)).bound
    print(guide.plan(), bound.hex())
"""


@pytest.mark.slow
def test_importing_anything_changes_no_plan() -> None:
    said = [
        subprocess.run([sys.executable, "-c", SCRIPT, what], capture_output=True, text=True, check=True).stdout
        for what in ("nothing", "all")
    ]
    assert "normal_gamma" not in said[0]
    assert "closed form" in said[0]
    assert said[0] == said[1]


# two views, and the kernel beside the engine


def views(first: Tensor, second: Tensor, document: Tensor) -> None:
    """Two tables of words with topics, loadings and assignments of their own, under one prior."""
    for view, words, size in (("words", first, 6), ("tags", second, 4)):
        with pyro.plate(f"{view} topics", 2):
            topics = pyro.sample(f"{view} of topics", dist.Dirichlet(torch.full((size,), 0.5)))
        with pyro.plate(f"{view} documents", 3):
            shares = pyro.sample(f"{view} of documents", dist.Dirichlet(torch.full((2,), 0.7)))
        with pyro.plate(f"{view} tokens", len(words)):
            choice = pyro.sample(f"choices of {view}", dist.Categorical(shares[document]))
            pyro.sample(view, dist.Categorical(topics[choice]), obs=words)


def test_each_view_of_the_words_has_its_own_term() -> None:
    document = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    first, other = torch.tensor([0, 1, 0, 3, 4, 5, 5, 2]), torch.tensor([5, 5, 5, 5, 0, 0, 0, 1])
    second = torch.tensor([0, 1, 0, 3, 3, 2, 2, 1])
    terms = []
    for words in (first, other):
        guide = ClosedFormGuide(views)
        fit(guide, words, second, document, options=OPTIONS)
        compiled = [claim for claim in guide.claims if "assignment" in getattr(claim, "roles", {})]
        assert [claim.roles["words"] for claim in compiled] == ["words", "tags"]
        terms.append({name: float(term) for name, term in guide.run(words, second, document).terms().items()})
    moved = {name for name in terms[0] if terms[0][name] != terms[1][name]}
    assert "words" in moved
    assert moved <= {"words", "choices of words", "words of topics", "words of documents"}


def test_without_the_kernel_the_fit_is_the_same() -> None:
    """PRME with points held: where the compiled updates stand still, so do the engine's own, at the same bound."""
    from pyro import poutine

    from pyro_prme.inference.rules import Conjugate, FromPrior, Topics

    torch.manual_seed(0)
    words = Batch.from_tokens([[0, 1, 1, 2], [3, 4, 4, 5, 5], [0, 2, 5]])
    held = {"V": torch.tensor([0.5, 0.4]), "ell": torch.randn(3, 2), "h": torch.randn(3, 1, 3)}
    model = poutine.condition(PRME(3, 6, 3, h_dim=3, ell_dim=2).eval(), held)
    kernel = ClosedFormGuide(model, rules={"f": FromPrior()}, candidates=(Topics(max_sweeps=500, tolerance=1e-13),))
    kernel.plan(words)
    (topics,) = [claim for claim in kernel.claims if "topics" in claim.roles]
    topics.set(0.2 + torch.rand(6, 3))
    for _ in range(250):
        run = kernel.run(words)
        topics.gather(run)
        topics.natural_step(1.0)
    run = kernel.run(words)
    engine = ClosedFormGuide(model, rules={"f": FromPrior()}, candidates=(Conjugate(),))
    engine.plan(words)
    (conjugate,) = [claim for claim in engine.claims if "theta" in claim.sites]
    assert set(conjugate.sites) == {"theta", "Z", "C"}
    Z = run.factor("Z")
    conjugate.set_natural("theta", {"log": kernel.posterior("theta").concentration - 1})
    conjugate.set_natural("Z", {"log": Z.concentration - 1, "x": -Z.rate})
    conjugate.set_natural("C", {"chosen": run.factor("C").probs.log()})
    with torch.no_grad():
        theirs = engine.run(words)
    assert float(theirs.bound().detach()) == pytest.approx(float(run.bound().detach()), rel=1e-8)
    before = {name: theirs.factors.natural[name] for name in conjugate.sites}
    theirs.factors.sweep()
    for name, natural in before.items():
        for key, value in natural.items():
            shift = value.logsumexp(-1, keepdim=True) if key == "chosen" else 0.0
            now = theirs.factors.natural[name][key]
            now = now - now.logsumexp(-1, keepdim=True) if key == "chosen" else now
            torch.testing.assert_close(now, value - shift, rtol=1e-8, atol=1e-8)


def test_no_module_outside_of_models_has_a_site_of_the_paper_by_its_name() -> None:
    """Roles stand for sites; `SYMBOLS` gives the paper's names to what is printed or written out."""
    folders = ("answers", "cli", "conjugacy", "equations", "inference", "runs", "kernels", "estimator.py", "plots")
    root, found = Path(pyro_prme.__file__).parent, set()
    for folder in folders:
        place = root / folder
        for path in [place] if place.is_file() else place.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and node.value in ("V", "theta", "ell", "h", "f", "Z", "C", "X"):
                    found.add((path.relative_to(root).as_posix(), node.value))
    symbols = {("answers/sites.py", symbol) for symbol in SYMBOLS.values()}
    others = {("answers/export.py", "theta"), ("answers/export.py", "X")}  # labels that a user asks for, or gets
    others.add(("plots/paintboxes.py", "C"))  # an anchor
    assert found == symbols | others
