"""What every sampler promises: seeds, generators, batches, labelled dimensions, and the global state left alone."""

import pickle

import numpy as np
import pytest
import xarray as xr

from pyro_prme import measures as m

BATCHED = {
    "feature paintbox": lambda **k: m.random_paintbox(3, seed=0).sample(5, **k),
    "partition paintbox": lambda **k: m.PartitionPaintbox(np.array([0.5, 0.3])).sample(20, **k),
    "strip": lambda **k: m.poisson_strip(5, **k),
    "window": lambda **k: m.poisson_window(2.0, 3.0, **k),
    "gamma process": lambda **k: m.completely_random_measure(m.GammaLevy(2.0), num_atoms=5, **k),
    "stable-beta": lambda **k: m.completely_random_measure(m.StableBetaLevy(2.0, 1.0, 0.3), missing_mass=0.1, **k),
    "sticks": lambda **k: m.stick_breaking(1.0, 5, **k),
    "restaurant": lambda **k: m.buffet_restaurant(5, 3.0, **k),
    "buffet": lambda **k: m.buffet_strip(5, 3.0, **k),
    "hdp": lambda **k: m.hierarchical_dirichlet_process(5, 6, **k),
    "hgp": lambda **k: m.hierarchical_gamma_process(5, 6, **k),
    "diln": lambda **k: m.diln(5, 6, **k),
    "prme": lambda **k: m.prme(5, 6, **k),
    "correlated": lambda **k: m.correlated_measure("gamma", 5, 6, m.GammaLevy(1.0), **k),
    "kallenberg": lambda **k: m.kallenberg_measure(5, 6, **k),
    "graphon": lambda **k: m.graphon(5, 6, lambda u, v: u * v, **k),
    "path": lambda **k: m.stationary_path(5, 2, 3.0, **k),
    "drift": lambda **k: m.drifting_prme(5, 6, **k),
    "edges": lambda **k: m.edge_growth((3, 6), **k),
    "empty matrix": lambda **k: m.empty_matrix_experiment((3, 6), **k),
    "objects of random paintboxes": lambda **k: objects_of_paintboxes(**k),
}
SINGLE = {
    "random paintbox": lambda **k: m.random_paintbox(3, **k),
    "decoder": lambda **k: m.random_decoder(**k),
}


def objects_of_paintboxes(seed, num_draws=None):
    rng = np.random.default_rng(seed)
    return m.random_paintbox(3, seed=rng, num_draws=num_draws).sample(5, seed=rng)


def variables(thing):
    """Its arrays by name, labelled where it says so."""
    data = thing if isinstance(thing, xr.DataArray) else getattr(thing, "data", None)
    if isinstance(data, xr.Dataset):
        return dict(data.data_vars)
    return {"x": data} if isinstance(data, xr.DataArray) else vars(thing)


def same(one, two):
    return pickle.dumps(variables(one)) == pickle.dumps(variables(two))


@pytest.mark.parametrize("name", BATCHED | SINGLE)
def test_a_seed_or_its_generator_says_all(name):
    sampler, before = (BATCHED | SINGLE)[name], np.random.get_state()[1].copy()  # noqa: NPY002
    first = sampler(seed=3)
    assert same(first, sampler(seed=3))
    assert same(first, sampler(seed=np.random.default_rng(3)))
    assert not same(first, sampler(seed=4))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("name", BATCHED)
def test_draws_are_a_labelled_batch_of_different_ones(name):
    one, many = variables(BATCHED[name](seed=3)), variables(BATCHED[name](seed=3, num_draws=4))
    assert one.keys() == many.keys()
    for key, variable in many.items():
        assert variable.dims == ("draw", *one[key].dims)
        assert variable.sizes["draw"] == 4
    assert any(len({draw.values.tobytes() for draw in variable}) == 4 for variable in many.values())


@pytest.mark.parametrize("name", BATCHED | SINGLE)
def test_what_is_drawn_can_be_plotted(name):
    if name != "decoder":  # a function, and not a draw of one
        assert callable((BATCHED | SINGLE)[name](seed=3).plot)
