"""The pictures to play with, in a real browser: their numbers, their keys, and that they ask nothing of a network."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_prme.equations.updates import solve_epsilon
from pyro_prme.explorer import page_data
from pyro_prme.explorer.pictures import PLAYS, play, write_plays
from pyro_prme.explorer.pictures.precomputed import ARRAYS, paintbox_arrays
from pyro_prme.measures import GeneralizedGammaLevy


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_plays(tmp_path_factory.mktemp("plays") / "plays.html")


def numbers(text):
    return [float(found.replace("\u2212", "-")) for found in re.findall(r"[-\u2212+]?\d+(?:\.\d+)?", text)]


def move(page, name, value):
    """Sets a slider."""
    page.eval_on_selector(f"#{name}", "(node, v) => { node.value = v; node.dispatchEvent(new Event('input')); }", value)


def test_all_are_on_one_page_that_opens_without_a_complaint(pages, file):
    page = pages.open(file)
    assert page.locator("section.play h2").count() == len(PLAYS)
    assert file.stat().st_size < 200_000


@pytest.mark.parametrize("name", PLAYS)
def test_a_notebook_shows_one_in_a_frame(pages, tmp_path, name):
    frame = play(name)._repr_html_()
    outer = tmp_path / "notebook.html"
    outer.write_text(f"<!doctype html><html data-ready><title>Notebook</title>{frame}</html>")
    inner = pages.open(outer).frame_locator("iframe")
    inner.locator("html[data-ready]").wait_for(state="attached")
    assert inner.locator("h2").count() == 1


def test_the_overlap_of_two_discs_is_what_geometry_says(pages, file):
    page = pages.open(file)
    row = numbers(page.inner_text("#discs tbody tr >> nth=0"))
    r, s, d = 100 / 380, 92 / 380, np.hypot(100, 40) / 380
    one, other = (
        np.arccos((d**2 + r**2 - s**2) / (2 * d * r)), np.arccos((d**2 + s**2 - r**2) / (2 * d * s)),
    )  # fmt: skip
    area = r**2 * (one - np.sin(2 * one) / 2) + s**2 * (other - np.sin(2 * other) / 2)
    p, q = np.pi * r**2, np.pi * s**2
    assert row[0] == pytest.approx(area, abs=0.002)
    assert row[1] == pytest.approx(p * q, abs=0.002)
    assert row[2] == pytest.approx((area - p * q) / np.sqrt(p * (1 - p) * q * (1 - q)), abs=0.02)


def test_discs_move_by_key_and_by_pointer(pages, file):
    page = pages.open(file)
    before = page.inner_text("#discs tbody")
    page.focus("#discs .handle >> nth=0")
    for _ in range(5):
        page.keyboard.press("Shift+ArrowRight")
    moved = page.inner_text("#discs tbody")
    assert moved != before
    box = page.locator("#discs .handle >> nth=2").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 80, box["y"] - 40, steps=3)
    page.mouse.up()
    assert page.inner_text("#discs tbody") != moved


def test_points_go_through_the_inverse_tail_of_the_library(pages, file):
    arrays = ARRAYS["inverse_tail"]()
    weights = np.array(arrays["weights"])
    for discount, row in zip(arrays["discounts"], weights, strict=True):
        levy = GeneralizedGammaLevy(arrays["mass"], discount=discount, rate=1.0)
        np.testing.assert_allclose(levy.tail(row[row > 1e-11]), np.array(arrays["arrivals"])[row > 1e-11], rtol=0.01)
    page = pages.open(file)
    move(page, "discount", 12)
    said = page.inner_text("#inverse_tail .said")
    assert f"{weights[12].sum():.2f} together" in said
    assert f"{(weights[12] > 0.01).sum()} are heavier" in said


def test_tables_and_dishes_are_those_of_the_draws(pages, file):
    arrays = ARRAYS["sticks"]()
    page = pages.open(file)
    move(page, "alpha", 3)
    move(page, "customers", 25)
    tables = []
    for i, u in enumerate(arrays["seats"][:25]):
        edges = np.cumsum([*tables, 3.0]) / (i + 3)
        k = int(np.searchsorted(edges, u, side="right"))
        tables = [*tables, 1] if k == len(tables) else [c + (j == k) for j, c in enumerate(tables)]
    assert f"25 customers: {len(tables)} tables" in page.inner_text("#sticks .said")
    assert f"({sum(3 / (3 + i) for i in range(25)):.1f} expected)" in page.inner_text("#sticks .said")
    fresh = [int(stats.poisson(3 / (i + 1)).ppf(u)) for i, u in enumerate(arrays["newDishes"][:25])]
    assert f"{sum(fresh)} dishes ({sum(3 / (i + 1) for i in range(25)):.1f} expected)" in page.inner_text(
        "#sticks .said"
    )


@pytest.mark.parametrize("beta", [0.5, 5.0, 80.0])
def test_the_prior_writes_by_the_quantiles_of_its_gammas(pages, file, beta):
    arrays = ARRAYS["written"]()
    page = pages.open(file)
    move(page, "written-alpha", np.log10(2))
    move(page, "written-beta", round(np.log10(beta) / 0.02) * 0.02)
    alpha = 10 ** float(page.input_value("#written-alpha"))
    beta = 10 ** float(page.input_value("#written-beta"))
    v = 1 - (1 - np.array(arrays["sticks"])) ** (1 / alpha)
    v[-1] = 1
    p = v * np.cumprod(np.concatenate([[1], 1 - v[:-1]]))
    Z = stats.gamma(np.maximum(beta * p, 1e-6)).ppf(np.array(arrays["loadings"]))
    expected = Z / Z.sum(1, keepdims=True)
    drawing = "#written svg[aria-label='Topics of three documents'] rect"
    wide = page.eval_on_selector_all(drawing, "(nodes) => nodes.map((node) => Number(node.getAttribute('width')))")
    np.testing.assert_allclose(np.reshape(wide, (3, 8)) / 300, expected, atol=0.004)


@pytest.mark.parametrize("length", [8, 400])
def test_epsilon_is_the_fixed_point_of_the_library(pages, file, length):
    arrays = ARRAYS["epsilon"]()
    page = pages.open(file)
    move(page, "length", np.log10(length))
    move(page, "epsilon-beta", 4)
    p, f, taken = (torch.tensor(arrays[name], dtype=torch.float64) for name in ("p", "f", "taken"))
    shape = (4 * p + length * taken)[None]
    total, tokens = 4 * p.sum()[None], torch.tensor([float(length)], dtype=torch.float64)
    expected = solve_epsilon(shape, (-f).exp()[None], tokens, total).item()
    said = page.inner_text("#epsilon .said")
    assert numbers(said.partition("=")[2])[0] == pytest.approx(expected, rel=0.01)
    steps = int(re.search(r"after (\d+) step", said)[1])
    assert steps < 30 if length == 8 else steps > 100


def test_topics_light_up_where_a_document_is_moved_to(pages, file):
    arrays = json.loads(json.dumps(ARRAYS["paintboxes"]()))
    page = pages.open(file)
    page.focus("#paintboxes .handle")
    for _ in range(60):
        page.keyboard.press("Shift+ArrowLeft")
        page.keyboard.press("Shift+ArrowUp")
    side = arrays["side"]
    corner = [box[(side - 1) * side] / arrays["total"][(side - 1) * side] for box in arrays["boxes"]]
    shown = [numbers(text)[-1] / 100 for text in page.locator("#paintboxes .box .name").all_inner_texts()]
    np.testing.assert_allclose(shown, corner, atol=0.006)
    assert arrays["names"][int(np.argmax(corner))] in page.inner_text("#paintboxes .said")


def test_paintboxes_of_a_fit_of_ones_own(shape_fit, hdp_fit):
    data = page_data(*shape_fit)
    arrays = paintbox_arrays(data, num_topics=3, num_documents=10)
    assert len(arrays["boxes"]) == len(arrays["names"]) == 3
    assert len(arrays["places"]) == 10
    total = np.array(arrays["total"])
    flat = dataclasses.replace(data, loadings=np.ones_like(data.loadings))
    flat.loadings[2], flat.loadings[3] = data.loadings[2], 1e3 * data.loadings[3] ** 4
    chosen = paintbox_arrays(flat, num_topics=2)["names"]
    assert chosen == [", ".join(data.vocabulary[w] for w in data.labels[t][:3]) for t in (2, 3)]
    assert (np.sum(arrays["boxes"], axis=0) <= total * 1.001).all()
    assert "A document dragged" not in play("discs").html
    assert json.dumps(arrays["names"][0]) in play("paintboxes", data).html
    with pytest.raises(ValueError, match="no random function"):
        paintbox_arrays(page_data(*hdp_fit))


def test_wrong_names_are_refused(shape_fit, tmp_path):
    with pytest.raises(ValueError, match="name is 'none'"):
        play("none")
    with pytest.raises(ValueError, match="name is 'none'"):
        write_plays(tmp_path / "x.html", ["none"])
    with pytest.raises(ValueError, match="leave data out"):
        play("discs", page_data(*shape_fit))


@pytest.mark.parametrize("width", [320, 400, 1200, 1920])
def test_nothing_is_wider_than_the_window(pages, file, width):
    page = pages.open(file, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_finding_of_axe(pages, axe, file, scheme):
    assert axe(pages.open(file, color_scheme=scheme)) == []
