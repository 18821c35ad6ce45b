"""Paintboxes: moments are volumes, the two kinds convert, and Kingman's partitions have their law."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pyro_prme.measures import FeaturePaintbox, PartitionPaintbox, random_paintbox, stick_breaking

from .laws import assert_mean

SUBSETS = [s for r in (1, 2, 3, 4) for s in combinations(range(4), r)]


def test_moments_are_intersection_volumes():
    box = random_paintbox(4, alpha=4.0, seed=8)
    Z = box.sample(40_000, seed=1).Z.values
    volumes = np.array([box.intersection_volume(s) for s in SUBSETS])
    assert (volumes > 0.01).sum() > 8  # the paint overlaps
    products = np.stack([Z[:, list(s)].prod(1) for s in SUBSETS], axis=1)
    assert_mean(products, volumes)


def test_draws_of_one_paintbox():
    box = random_paintbox(4, alpha=4.0, seed=8)
    drawn = box.sample(3, seed=1, num_draws=5)
    assert drawn.Z.dims == ("draw", "object", "feature")
    np.testing.assert_array_equal(drawn.Z.values.reshape(15, 4), box.sample(15, seed=1).Z.values)


def test_moments_over_random_paintboxes():
    rng = np.random.default_rng(2)
    boxes = [random_paintbox(3, seed=rng) for _ in range(1500)]
    hit = np.array([box.sample(1, seed=rng).Z.values[0] for box in boxes])
    for s in ((0,), (0, 1), (0, 1, 2)):
        volume = np.array([box.intersection_volume(s) for box in boxes])
        assert_mean(hit[:, list(s)].prod(1) - volume, 0.0)
    # vol(S_k) is a product of Beta(alpha, 1) with alpha = 2
    assert_mean([box.volumes().values for box in boxes], (2 / 3) ** np.arange(1, 4))


def test_a_batch_of_random_paintboxes_is_so_many_of_them():
    """Every one of the batch is a paintbox like a single one: its volumes are sticks, its objects hit its own paint."""
    boxes = random_paintbox(3, seed=2, num_draws=1500)
    volumes = boxes.volumes()
    assert volumes.dims == ("draw", "feature")
    assert_mean(volumes.values, (2 / 3) ** np.arange(1, 4))
    drawn = boxes.sample(1, seed=3)
    for s in ((0,), (0, 1), (0, 1, 2)):
        overlap = boxes.intersection_volume(s)
        assert overlap.dims == ("draw",)
        assert_mean(drawn.Z.values[:, 0, list(s)].prod(1) - overlap.values, 0.0)
    for i in (0, 1, 1499):
        box = boxes.draw(i)
        np.testing.assert_allclose(box.volumes(), volumes[i])
        assert box.intersection_volume((0, 1)) == pytest.approx(float(boxes.intersection_volume((0, 1))[i]))
        assert abs(box.to_partition().lengths.sum() - 1) < 1e-12
        x, y = drawn.data["u"].values[i, 0]
        cell = [np.searchsorted(edges, at, side="right") - 1 for edges, at in zip(box.edges, (x, y), strict=True)]
        np.testing.assert_array_equal(drawn.Z.values[i, 0], box.paint[:, cell[0], cell[1]])


def test_a_batch_of_one_is_a_single_paintbox():
    one, single = random_paintbox(4, seed=5, num_draws=1), random_paintbox(4, seed=5)
    assert one.num_draws == 1
    assert single.num_draws is None
    np.testing.assert_array_equal(one.draw(0).paint, single.paint)
    for a, b in zip(one.draw(0).edges, single.edges, strict=True):
        np.testing.assert_array_equal(a, b)


def test_sides_and_places_of_a_random_paintbox():
    alpha, rng = 2.0, np.random.default_rng(9)
    ratios, places = [], []
    for _ in range(400):
        box = random_paintbox(30, alpha=alpha, seed=rng)
        volumes = box.volumes().values
        ratios.append(np.log(volumes[1:] / volumes[:-1]))
        for axis, edges in enumerate(box.edges):
            cells = np.flatnonzero(box.paint[3].any(1 - axis))
            low, high = edges[cells[0]], edges[cells[-1] + 1]
            places.append(low / (1 - (high - low)))
    assert_mean(-np.concatenate(ratios), 1 / alpha)  # a Beta(alpha, 1) is the exponential of minus an exponential
    assert stats.kstest(places, "uniform").pvalue > 1e-3


@given(seed=st.integers(0, 10_000), num_features=st.integers(1, 6))
@settings(deadline=None, max_examples=40)
def test_conversion_keeps_every_moment(seed, num_features):
    box = random_paintbox(num_features, alpha=3.0, seed=seed)
    partition = box.to_partition()
    assert abs(partition.lengths.sum() - 1) < 1e-12
    back = partition.to_features()
    for r in range(num_features + 1):
        for s in combinations(range(num_features), r):
            assert abs(box.intersection_volume(s) - back.intersection_volume(s)) < 1e-12


def test_partition_blocks_are_the_distinct_values():
    box = random_paintbox(3, alpha=4.0, seed=8)
    partition = box.to_partition()
    codes, counts = np.unique(box.sample(20_000, seed=3).Z.values, axis=0, return_counts=True)
    length = {tuple(code): length for code, length in zip(partition.codes, partition.lengths, strict=True)}
    for code, count in zip(codes, counts, strict=True):
        p = length[tuple(code.astype(bool))]
        assert abs(count / 20_000 - p) < 4 * np.sqrt(p * (1 - p) / 20_000)


def test_kingman_with_sticks_is_the_chinese_restaurant():
    alpha, n = 2.0, 15
    sticks = stick_breaking(alpha, 200, seed=4, num_draws=1500).values
    rng = np.random.default_rng(5)
    blocks = [np.unique(PartitionPaintbox(p).sample(n, seed=rng)).size for p in sticks]
    assert_mean(blocks, (alpha / (alpha + np.arange(n))).sum())


def test_dust_gives_singletons():
    box = PartitionPaintbox(np.array([0.5, 0.2]))
    assert box.dust == pytest.approx(0.3)
    block = box.sample(30, seed=6, num_draws=2000).values
    dusty = block >= 2
    assert_mean(dusty.mean(1), 0.3)
    assert all(len(set(row[d])) == d.sum() for row, d in zip(block, dusty, strict=True))


def test_blocks_without_codes_are_features():
    features = PartitionPaintbox(np.array([0.6, 0.4])).to_features()
    np.testing.assert_allclose(features.volumes(), [0.6, 0.4])
    assert features.intersection_volume([0, 1]) == 0


def test_lengths_and_codes_may_be_lists():
    features = PartitionPaintbox([0.5, 0.5], [[1, 0], [0, 1]]).to_features()
    np.testing.assert_allclose(features.volumes(), [0.5, 0.5])
    assert features.intersection_volume([0, 1]) == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PartitionPaintbox(np.array([0.9, 0.2])), "sum to at most 1"),
        (lambda: PartitionPaintbox(np.array([0.5]), np.zeros((2, 3))), "one code a block"),
        (lambda: PartitionPaintbox([0.5, 0.5], [1, 0]), "one code a block"),
        (lambda: PartitionPaintbox(np.array([0.5])).to_features(), "dust"),
        (lambda: FeaturePaintbox((np.array([0.0, 1.0]),), np.ones((2, 3), bool)), "cells"),
        (lambda: FeaturePaintbox((np.array([0.0, 0.5]),), np.ones((2, 1), bool)), "from 0 to 1"),
        (lambda: FeaturePaintbox(([0.0, np.nan, 1.0],), np.ones((1, 2))), "from 0 to 1"),
        (lambda: PartitionPaintbox([np.nan, 0.2]), "sum to at most 1"),
        (lambda: random_paintbox(3).intersection_volume([3]), "features must lie"),
        (lambda: random_paintbox(3, seed="x"), "seed"),
        (lambda: random_paintbox(101), "num_features is 101: it must be a whole number from 1 to 100"),
        (lambda: random_paintbox(3, num_draws=0), "num_draws"),
        (lambda: random_paintbox(3, num_draws=2).draw(2), "no draw 2: this paintbox has 2 draws"),
        (lambda: random_paintbox(3).draw(0), "this paintbox has no draws"),
        (lambda: random_paintbox(3, num_draws=2).to_partition(), "convert one"),
        (lambda: random_paintbox(3, num_draws=2).sample(5, num_draws=3), "has 2 draws; leave it out"),
        (lambda: FeaturePaintbox(([0.0, 0.5, 1.0],), np.ones((4, 3, 2))), "a first one of draws, or none"),
        (lambda: FeaturePaintbox(([0.0, 0.5, 1.0],), np.ones(2)), "a first one of draws, or none"),
        (lambda: random_paintbox(3, alpha=0.0), "alpha"),
        (lambda: random_paintbox(3).sample(0), "num_objects"),
    ],
)
def test_wrong_inputs(make, words):
    with pytest.raises(ValueError, match=words):
        make()
