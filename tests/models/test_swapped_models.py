"""Every swapped prior: what its plan says, that it is fitted, and that the names of its sites decide nothing."""

import pytest
import torch

from pyro_prme.corpora.batch import Batch
from pyro_prme.inference.data import Rows
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.models.count_rows import NegativeBinomialPRME, PoissonPRME
from pyro_prme.models.covariates import CovariatePRME
from pyro_prme.models.priors import HorseshoePlaces, PitmanYorSticks
from pyro_prme.models.real_rows import BinaryPRME, GaussianPRME
from pyro_prme.models.simulation import simulate
from tests.models.swapped import EMBEDDED, MODELS, D, K, N, corpus, make, metadata

POINT, FREE_POINT = "point mass on the site's own scale", "point mass on the unconstrained scale, with its Jacobian"
NETWORK, PRIOR = "point mass at the inference network's output", "its prior, q = p"
GAUSSIAN, NORMAL = "Normal for each document, Newton and fixed point", "Normal, reparameterised gradient"
COMPILED = {
    "theta": "closed form, Dirichlet, natural steps (compiled)",
    "Z": "closed form, Gamma, for each batch (compiled)",
    "C": "closed form, Categorical, implied (compiled)",
    "X": "observed",
}
PAPER = COMPILED | {"ell": POINT, "V": POINT, "h": NETWORK, "f": PRIOR}
SHAPE = {name: update for name, update in PAPER.items() if name != "f"}
EFFECT = {"W": "closed form, Normal, joint over 2"}

#: What the plan of each model says of its sites.
PLANS = {
    "HDP": COMPILED | {"V": POINT},
    "PRME": PAPER,
    "ShapePRME": SHAPE,
    "DILN": COMPILED | {"V": POINT, "f": GAUSSIAN},
    "Pitman-Yor": PAPER | {"V": FREE_POINT},
    "Pitman-Yor, f in the shape": SHAPE | {"V": FREE_POINT},
    "finite Dirichlet": PAPER | {"V": FREE_POINT},
    "log-normal": PAPER
    | {
        "theta": "closed form, Dirichlet",
        "Z": "Normal from the inference network, reparameterised gradient",
        "C": "closed form, Categorical, for each batch",
    },
    "horseshoe": PAPER | {"lambda": NORMAL, "ell": NORMAL},
    "covariates": PAPER | EFFECT,
    "covariates, f in the shape": SHAPE | EFFECT,
    "Gaussian process": COMPILED | {"ell": POINT, "V": POINT, "f": GAUSSIAN},
    "learned numbers": PAPER | {"alpha": "closed form, Gamma", "beta": POINT, "gamma0": POINT, "V": FREE_POINT},
    "learned discount": PAPER | {"alpha": POINT, "discount": POINT, "V": FREE_POINT},
}


def fitted(model, epochs=3):
    guide = PRMEGuide(model)
    trainer = Trainer(guide, Counts(corpus()), TrainOptions(batch_size=10, learning_rate=0.02))
    return guide, [record["bound"] for record in trainer.fit(epochs)]


@pytest.mark.parametrize("name", MODELS)
def test_it_is_planned_and_fitted_and_its_names_decide_nothing(name):
    guide, bounds = fitted(make(name))
    plan = guide.plan()
    assert {site: entry.update for site, entry in plan.entries.items()} == PLANS[name]
    assert bounds[-1] > bounds[0]
    other = make(name, renamed=1)
    renamed, again = fitted(other)
    assert {site: e.update for site, e in renamed.plan().entries.items()} == {
        other.names[site]: update for site, update in PLANS[name].items()
    }
    assert again == pytest.approx(bounds, rel=1e-12)


def test_the_plan_says_why_a_point_was_not_taken():
    guide = PRMEGuide(make("horseshoe"))
    plan = guide.plan(Batch.from_csr(corpus()))
    assert "with that of lambda, has no maximum where the prior of lambda lies" in plan["ell"].reason


def test_several_swaps_go_together_in_one_class():
    """Sticks, places and covariates of other kinds in one model; each keeps what it has alone."""

    class Together(PitmanYorSticks, HorseshoePlaces, CovariatePRME):
        pass

    torch.manual_seed(0)
    guide, bounds = fitted(Together(K, D, N, metadata=metadata(), **EMBEDDED))
    updates = {site: entry.update for site, entry in guide.plan().entries.items()}
    assert updates == PAPER | EFFECT | {"V": FREE_POINT, "lambda": NORMAL, "ell": NORMAL}
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("likelihood", [PoissonPRME, NegativeBinomialPRME, GaussianPRME, BinaryPRME])
def test_metadata_go_with_every_likelihood_in_either_order(likelihood, first):
    """The network reads rows, and the metadata with them; the effect has its closed form."""
    torch.manual_seed(0)
    kinds = (CovariatePRME, likelihood) if first else (likelihood, CovariatePRME)
    model = type("Combined", kinds, {})(K, D, N, metadata=metadata(), **EMBEDDED)
    guide = PRMEGuide(model)
    data = Rows(simulate(model, N, seed=1)[0])
    bounds = [r["bound"] for r in Trainer(guide, data, TrainOptions(batch_size=15, learning_rate=0.02)).fit(3)]
    assert guide.plan()["W"].update == EFFECT["W"]
    encoder = guide.claim("h").encoder
    assert [type(part).__name__ for part in (encoder, encoder.encoder)] == ["CovariateEncoder", "RowEncoder"]
    assert bounds[-1] > bounds[0]
