import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import Predictive, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta

from pyro_prme import HDP, PRME, Batch, PRMEGuide
from tests.conftest import small_model

SITES = ["ell", "V", "theta", "h", "f", "Z", "C", "X"]


def sites(trace):
    return [name for name in trace.nodes if trace.nodes[name]["type"] == "sample" and name in SITES]


def test_sites_plates_and_shapes(entries):
    trace = poutine.trace(small_model()).get_trace(entries)
    trace.compute_log_prob()
    assert sites(trace) == SITES
    shapes = {name: tuple(trace.nodes[name]["value"].shape) for name in SITES}
    E = entries.num_entries
    assert shapes == {
        "ell": (5, 2), "V": (4,), "theta": (5, 10), "h": (4, 1, 3), "f": (4, 5), "Z": (4, 5), "C": (E,), "X": (E,)
    }  # fmt: skip
    plates = {name: [frame.name for frame in trace.nodes[name]["cond_indep_stack"]] for name in SITES}
    assert plates["theta"] == ["topics"]
    assert set(plates["Z"]) == {"documents", "topics"}
    assert plates["X"] == ["words"]


def test_a_batch_stands_for_the_corpus_once(entries):
    """The documents plate scales by N / B; a word weighs its count times N / B."""
    trace = poutine.trace(small_model(num_documents=12)).get_trace(entries)
    assert trace.nodes["Z"]["scale"] == 3
    torch.testing.assert_close(trace.nodes["X"]["scale"], 3 * entries.count)
    assert trace.nodes["theta"]["scale"] == 1


def test_loadings_have_the_gamma_law():
    model = small_model(num_documents=2000).eval()
    values = {"V": torch.tensor([0.5, 0.5, 0.5, 0.5]), "f": torch.full((2000, 5), 0.7)}
    trace = poutine.trace(poutine.condition(model, values)).get_trace(Batch.to_draw([1] * 2000))
    Z = trace.nodes["Z"]["value"]
    p = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16])
    mean, scale = 5 * p * torch.tensor(0.7).exp(), torch.tensor(0.7).exp()
    assert ((Z.mean(0) - mean).abs() < 4 * (mean * scale / 2000).sqrt()).all()


def test_words_and_topics_have_the_discrete_laws():
    model = HDP(2, 3, 1)
    theta = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    values = {"Z": torch.tensor([[1.0, 3.0]]), "theta": theta}
    trace = poutine.trace(poutine.condition(model, values)).get_trace(Batch.to_draw([20_000]))
    C, X = trace.nodes["C"]["value"], trace.nodes["X"]["value"]
    assert abs((C == 1).double().mean() - 0.75) < 0.0125
    for k in (0, 1):
        frequencies = X[k == C].bincount(minlength=3) / (k == C).sum()
        assert (frequencies - theta[k]).abs().max() < 0.025


@pytest.mark.parametrize("parallel", [False, True])
def test_prior_predictive(parallel):
    draws = Predictive(small_model().eval(), num_samples=3, parallel=parallel)(Batch.to_draw([5, 3, 0, 7]))
    assert draws["X"].shape == (3, 1, 15)
    assert draws["Z"].shape == (3, 4, 5)
    assert draws["X"].min() >= 0
    assert draws["X"].max() < 10


def test_posterior_predictive(tokens):
    """Draws from the guide, and new words for the same documents given them."""
    model = small_model()
    guide = PRMEGuide(model)
    guide(tokens)
    model.eval(), guide.eval()
    draws = Predictive(model, guide=guide, num_samples=6)(tokens)
    assert (draws["X"].squeeze(1) == tokens.word).all()
    assert draws["theta"].std(0).min() > 0, "theta is drawn, not held"
    latent = {name: draws[name] for name in ("ell", "V", "theta", "h", "f", "Z")}
    new = Predictive(model, latent)(tokens.with_words(None))
    assert new["X"].shape == draws["X"].shape
    assert not torch.equal(new["X"], draws["X"])


def test_it_renders(entries):
    graph = pyro.render_model(small_model(), model_args=(entries,), render_distributions=True)
    for name in [*SITES, "topics", "documents", "words"]:
        assert name in graph.source


def test_topics_can_be_summed_out_and_give_the_mixture(tokens):
    """TraceEnum_ELBO with every other site fixed is the log of the mixture over topics."""
    model = HDP(3, 10, 4)
    Z, theta = torch.rand(4, 3), torch.rand(3, 10).softmax(-1)
    fixed = poutine.condition(model, {"V": torch.tensor([0.5, 0.5]), "Z": Z, "theta": theta})
    summed = config_enumerate(poutine.block(fixed, hide=["V", "Z", "theta"]), "parallel")
    loss = TraceEnum_ELBO(max_plate_nesting=2).loss(summed, lambda batch: None, tokens)
    p = (Z / Z.sum(-1, keepdim=True))[tokens.document] @ theta
    torch.testing.assert_close(-loss, float(p.gather(1, tokens.word.unsqueeze(1)).log().sum()))


@pytest.mark.parametrize("local", [False, True])
def test_both_param_store_modes(local, tokens):
    before = pyro.settings.get("module_local_params")
    with pyro.settings.context(module_local_params=local):
        model = small_model()
        guide = PRMEGuide(model)
        assert not pyro.get_param_store().keys(), "constructors leave the param store alone"
        guide(tokens)
        assert bool(pyro.get_param_store().keys()) != local
    assert pyro.settings.get("module_local_params") == before


def test_two_models_do_not_share_parameters_through_the_store(tokens):
    first, second = small_model(), small_model()
    first(tokens), second(tokens)
    assert not torch.equal(first.decoder.from_h.weight, second.decoder.from_h.weight)
    assert len(pyro.get_param_store().keys()) == 2 * len(list(first.parameters()))


def test_a_plain_pyro_guide_serves_the_model_too(tokens):
    """The model is an ordinary Pyro program: an autoguide and enumeration run on it."""
    model = HDP(3, 10, 4)
    guide = AutoDelta(poutine.block(model, hide=["C"]))
    loss = TraceEnum_ELBO(max_plate_nesting=2).loss(config_enumerate(model), guide, tokens)
    assert torch.isfinite(torch.tensor(loss))


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"beta": float("nan")}, "beta is nan"),
        ({"gamma0": -1.0}, "gamma0 is -1.0"),
        ({"num_topics": 1}, "num_topics is 1: it must be a whole number of at least 2"),
        ({"num_topics": "a"}, "num_topics is 'a': it must be a whole number"),
        ({"vocab_size": 2.5}, "vocab_size is 2.5: it must be a whole number"),
        ({"h_dim": 1.5}, "h_dim is 1.5: it must be a whole number"),
        ({"h_dim": 0}, "h_dim is 0: it must be a whole number of at least 1"),
        ({"h_dim": -1}, "h_dim is -1"),
        ({"ell_dim": 0}, "ell_dim is 0"),
        ({"beta": "a"}, "beta is 'a': it must be a finite number above 0"),
        ({"alpha": None}, "alpha is None: it must be a finite number above 0"),
    ],
)
def test_wrong_hyperparameters_are_refused(kwargs, reason):
    with pytest.raises(ValueError, match=reason):
        PRME(**{"num_topics": 3, "vocab_size": 10, "num_documents": 4} | kwargs)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="no documents"):
        small_model()(Batch.to_draw([]))
