"""The explorer page in a real browser with the network off: what it says, how it is used, and that it asks nothing."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

from pyro_prme.equations.updates import assignment_probabilities, loadings_update, solve_epsilon
from pyro_prme.explorer import explore, page_data, page_html


def until(page, expression):
    """Waits for the page; Playwright's own waiting needs code from strings, which the page forbids."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within 5 s: {expression}")


def topic_of(page):
    return page.evaluate("Number(pyroPrme.data.numbers[pyroPrme.state.topic])")


def test_texts_of_the_corpus_are_never_markup(pages, shape_page):
    page = pages.open(shape_page, "#document=3&tab=document")
    assert page.title() == "A <title> & more"
    assert page.inner_text("#panel-document h3.big") == "text <i>3</i>"
    page.fill("#search", "<b>")
    assert "<b>" in page.inner_text("#found li >> nth=0")


@pytest.mark.parametrize("by", ["probability", "lift", "frex"])
def test_words_are_ranked_as_the_posterior_ranks_them(pages, shape_page, shape_fit, by):
    page = pages.open(shape_page)
    table = shape_fit[0].top_words(8, by=by)
    weight = 1 if by == "lift" else 0.5
    for t, k in enumerate(page.evaluate("[...pyroPrme.data.numbers]")):
        shown = page.evaluate(f"pyroPrme.topWords({t}, 8, '{by}', {weight}).map((w) => pyroPrme.data.vocabulary[w])")
        assert len(set(shown) & set(table.loc[k])) >= 7  # numbers of one byte may exchange neighbours
    page.click(f"label[for=by-{by}]")
    assert page.evaluate("pyroPrme.state.by") == by


def test_the_slider_changes_the_words(pages, shape_page):
    page = pages.open(shape_page, "#by=frex&weight=0")
    often = page.inner_text("#words ol")
    page.focus("#weight")
    page.keyboard.press("End")
    assert "weight=1" in page.url
    assert page.inner_text("#words ol") != often


@pytest.mark.parametrize("form", ["shape", "scale"])
def test_a_moved_document_gets_the_topics_that_the_model_would_give_it(pages, request, form):
    """At its own place, which a plane of two dimensions has whole, they are those of the posterior."""
    posterior, corpus = request.getfixturevalue(f"{form}_fit")
    page = pages.open(request.getfixturevalue(f"{form}_page"))
    used = page.evaluate("[...pyroPrme.data.numbers]")
    expected = posterior.proportions(corpus).values[:, used]
    for n in (0, 3, 11, 40):
        at = page.evaluate(f"[pyroPrme.data.x[{n}], pyroPrme.data.y[{n}]]")
        if max(map(abs, at)) > 1:
            continue
        moved = page.evaluate(f"[...pyroPrme.sharesOf({n}, {json.dumps(at)})]")
        np.testing.assert_allclose(moved, expected[n] / expected[n].sum(), atol=0.03)
        stored = page.evaluate(f"[...pyroPrme.sharesOf({n}, null)]")
        np.testing.assert_allclose(stored, expected[n] / expected[n].sum(), atol=0.02)


@pytest.mark.parametrize("form", ["shape", "scale"])
def test_the_updates_of_a_moved_document_are_those_of_the_library(pages, shape_fit, tmp_path, form):
    """With loadings that are very different, and the same everywhere, so that interpolation changes nothing."""
    data = page_data(*shape_fit)
    rng = np.random.default_rng(0)
    T, side = data.loadings.shape[:2]
    p, f = rng.dirichlet(np.ones(T)), rng.normal(0, 1.5, T)
    concentration = torch.tensor(5 * p if form == "scale" else 5 * p * np.exp(f) / (p @ np.exp(f)))
    rate = torch.tensor(np.exp(-f) if form == "scale" else np.ones(T))
    flat = np.broadcast_to((concentration / rate).numpy()[:, None, None], (T, side, side)) * np.linspace(
        1, 1 + 1e-9, side
    )
    path = tmp_path / "page.html"
    path.write_text(page_html(dataclasses.replace(data, loadings=flat, weights=5 * p if form == "scale" else None)))
    page = pages.open(path)
    for n in (0, 3, 11, 40):
        row = data.counts[[n]]
        theta, count = torch.tensor(data.topics[:, row.indices].T), torch.tensor(row.data, dtype=torch.float64)
        tokens = count.sum()[None]
        taken = tokens * torch.full((T,), 1 / T, dtype=torch.float64)
        for _ in range(200):
            epsilon = solve_epsilon((concentration + taken)[None], rate[None], tokens, concentration.sum()[None])
            a, b = loadings_update(concentration, taken[None], rate[None], tokens, epsilon)
            taken = count @ assignment_probabilities(a.digamma() - b.log(), theta.log())
        expected = (a / b)[0] / (a / b).sum()
        moved = page.evaluate(f"[...pyroPrme.sharesOf({n}, [0, 0])]")
        np.testing.assert_allclose(moved, expected, atol=0.02)


def test_a_document_without_words_has_the_topics_of_its_place(pages, shape_fit, tmp_path):
    data = page_data(*shape_fit)
    T, side = data.loadings.shape[:2]
    slopes = np.random.default_rng(1).normal(0, 2, (T, 2))
    line = np.linspace(-1, 1, side)
    loadings = np.exp(slopes[:, :1, None] * line + slopes[:, 1:, None] * line[:, None])
    path = tmp_path / "page.html"
    path.write_text(page_html(dataclasses.replace(data, loadings=loadings)))
    page = pages.open(path)
    for place in ((0.6, -0.3), (-0.8, 0.9)):
        expected = np.exp(slopes @ place)
        shares = page.evaluate(f"[...pyroPrme.sharesOf(7, {json.dumps(place)})]")
        np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.01)


def test_the_map_goes_nearer_and_farther(pages, shape_page):
    page = pages.open(shape_page, "#document=5&tab=document")
    assert page.is_disabled("#farther")
    page.click("#nearer")
    page.click("#nearer")
    marker, square = page.locator("#marker").bounding_box(), page.locator("#square").bounding_box()
    there = page.evaluate("[pyroPrme.data.x[5], pyroPrme.data.y[5]]")
    middle = np.clip(there, -0.75, 0.75)
    expected = (np.array(there) - middle) * 4 * square["width"] / 2 + square["width"] / 2
    assert marker["x"] + 15 - square["x"] == pytest.approx(expected[0], abs=1.5)
    page.mouse.move(marker["x"] + 15, marker["y"] + 15)
    page.mouse.down()
    page.mouse.move(marker["x"] + 15 + square["width"] / 8, marker["y"] + 15, steps=3)
    page.mouse.up()
    until(page, "pyroPrme.state.place !== null")
    assert page.evaluate("pyroPrme.state.place[0]") == pytest.approx(there[0] + 1 / 16, abs=0.01)
    page.click("#farther")
    page.click("#farther")
    assert page.is_disabled("#farther")


def test_dragging_with_the_pointer_and_the_arrow_keys(pages, shape_page):
    page = pages.open(shape_page, "#document=5&tab=document")
    before = page.inner_text("#shares")
    box = page.locator("#marker").bounding_box()
    square = page.locator("#square").bounding_box()
    page.mouse.move(box["x"] + 15, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(square["x"] + 30, square["y"] + 30, steps=4)
    page.mouse.up()
    until(page, "pyroPrme.state.place !== null && location.hash.includes('at=')")
    place = page.evaluate("pyroPrme.state.place")
    assert place[0] < -0.7
    assert place[1] > 0.7
    assert "Put it back" in page.inner_text("#moved")
    box = page.locator("#marker").bounding_box()
    assert (box["x"] + 15, box["y"] + 15) == pytest.approx((square["x"] + 30, square["y"] + 30), abs=2)
    page.focus("#marker")
    page.keyboard.press("Shift+ArrowRight")
    assert page.evaluate("pyroPrme.state.place[0]") == pytest.approx(place[0] + 0.15)
    assert page.inner_text("#said")
    page.keyboard.press("Escape")
    assert page.evaluate("pyroPrme.state.place") is None
    assert page.inner_text("#shares") == before


def test_topics_light_up_by_what_is_selected(pages, shape_page, shape_fit):
    data = page_data(*shape_fit)
    page = pages.open(shape_page, "#document=5&tab=document&word=a1")
    lit = "[...document.querySelectorAll('#topics .lit')].map((lit) => Number(lit.style.getPropertyValue('--v')))"
    np.testing.assert_allclose(page.evaluate(lit), data.proportions[5] / data.proportions[5].sum(), atol=0.01)
    page.click("#tab-word")
    mine = data.usage * data.topics[:, data.vocabulary.index("a1")]
    np.testing.assert_allclose(page.evaluate(lit), mine / mine.sum(), atol=0.03)
    page.click("#tab-topic")
    assert page.locator("#topics .lit >> nth=0").is_hidden()
    page.select_option("#sort", "correlation")
    shown = page.evaluate("[...document.querySelectorAll('#topics .name')].map((name) => name.textContent)")
    labels = [", ".join(data.vocabulary[w] for w in data.labels[t][:3]) for t in data.order]
    assert shown == labels


def test_links_lead_back_to_what_was_seen(pages, shape_page):
    page = pages.open(shape_page)
    page.click("#topics button >> nth=2")
    page.select_option("#other", index=1)
    page.fill("#search", "text 12")
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel-document h3.big")
    state = page.evaluate("JSON.stringify(pyroPrme.state)")
    again = pages.open(shape_page, page.evaluate("location.hash"))
    assert again.evaluate("JSON.stringify(pyroPrme.state)") == state
    assert again.inner_text("#panel-document h3.big") == "text 12"
    page.go_back()
    assert page.evaluate("pyroPrme.state.document") is None


def test_wrong_links_show_the_start(pages, shape_page):
    page = pages.open(shape_page, "#topic=999&document=-1&with=x&word=nothing&tab=no&weight=7&at=9,9&by=no&sort=no")
    state = page.evaluate("pyroPrme.state")
    assert (state["topic"], state["document"], state["other"], state["word"]) == (0, None, None, None)
    assert (state["tab"], state["by"], state["weight"], state["place"]) == ("topic", "frex", 0.5, None)


def test_search_finds_words_topics_and_documents_by_keyboard(pages, shape_page, shape_fit):
    page = pages.open(shape_page)
    page.keyboard.press("/")
    page.keyboard.type("b3")
    page.keyboard.press("Enter")
    assert page.inner_text("#panel-word h3.big") == "b3"
    column = shape_fit[1].counts[:, [shape_fit[1].vocabulary.index("b3")]].toarray().ravel()
    shown = [int(text) for text in page.locator("#panel-word .documents .value").all_inner_texts()]
    assert shown == sorted(column[column > 0], reverse=True)[:15]
    assert f"{column.sum()} times in {(column > 0).sum()} documents" in page.inner_text("#panel-word")
    page.keyboard.press("/")
    page.keyboard.type("zzz")
    assert "Nothing" in page.inner_text("#found")
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()


def test_topics_tabs_and_matrix_by_keyboard(pages, shape_page):
    page = pages.open(shape_page)
    page.focus("#topics button >> nth=0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("pyroPrme.state.topic") == 1
    page.focus("#tab-topic")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("pyroPrme.state.tab") == "correlations"
    page.focus("#matrix")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#pair-name") == page.inner_text("#said")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    state = page.evaluate("pyroPrme.state")
    order = page.evaluate("pyroPrme.data.order")
    assert [state["topic"], state["other"]] == [order[2], order[1]]
    assert "correlation" in page.inner_text("#legend")


def test_the_table_of_correlations_says_what_the_matrix_shows(pages, shape_page, shape_fit):
    page = pages.open(shape_page, "#tab=correlations")
    page.click("#panel-correlations summary")
    page.wait_for_selector("#panel-correlations td")
    numbers = page.evaluate("pyroPrme.data.order.map((t) => pyroPrme.data.numbers[t])")
    cells = [float(text) for text in page.locator("#panel-correlations td").all_inner_texts()]
    expected = shape_fit[0].topic_correlations(shape_fit[1]).values[np.ix_(numbers, numbers)]
    np.testing.assert_allclose(np.reshape(cells, expected.shape), expected, atol=0.006)


def test_names_are_given_saved_and_loaded(pages, shape_page, shape_fit, tmp_path):
    page = pages.open(shape_page)
    number = topic_of(page)
    page.fill("#topic-name", "Ships")
    page.keyboard.press("Tab")
    assert "Ships" in page.inner_text("#topics")
    with page.expect_download() as download:
        page.click("#save-names")
    file = tmp_path / "names.json"
    download.value.save_as(file)
    assert json.loads(file.read_text())["topics"] == {str(number): "Ships"}
    again = pages.open(shape_page)
    assert "Ships" not in again.inner_text("#topics")
    again.set_input_files("#names-file", file)
    until(again, "document.getElementById('topics').innerText.includes('Ships')")
    baked = explore(*shape_fit, tmp_path / "named.html", names=file)
    assert "Ships" in pages.open(baked).inner_text("#topics")


def test_the_words_of_a_document_are_all_there_and_named_by_topic(pages, shape_page, shape_fit):
    page = pages.open(shape_page, "#document=4&tab=document")
    corpus = shape_fit[1]
    row = corpus.counts[[4]]
    expected = {corpus.vocabulary[d]: int(c) for d, c in zip(row.indices, row.data, strict=True)}
    shown = {}
    for text in page.locator("#text .token").all_inner_texts():
        word = max((w for w in expected if text.startswith(w)), key=len)
        shown[word] = int(text.removeprefix(word) or 1)
    assert shown == expected
    absent = page.locator("#surprises section >> nth=0").locator(".word").all_inner_texts()
    assert absent
    assert not set(absent) & set(expected)
    data = page_data(*shape_fit)
    shares = data.proportions[4] / data.proportions[4].sum()
    times = dict(zip(data.vocabulary, data.lengths[4] * (shares @ data.topics), strict=True))
    values = [float(text) for text in page.locator("#surprises section >> nth=0").locator(".value").all_inner_texts()]
    np.testing.assert_allclose(values, [times[word] for word in absent], atol=0.15)
    more = page.locator("#surprises section >> nth=1")
    for word, value in zip(
        more.locator(".word").all_inner_texts(), more.locator(".value").all_inner_texts(), strict=True
    ):
        there, predicted = map(float, value.split(" / "))
        assert there == expected[word]
        assert predicted == pytest.approx(times[word], abs=0.15)


def test_large_counts_and_large_vocabularies_are_unpacked(pages, shape_fit, tmp_path):
    data = page_data(*shape_fit)
    path = tmp_path / "page.html"
    path.write_text(page_html(dataclasses.replace(data, counts=data.counts * 137)))
    page = pages.open(path)
    start, end = data.counts.indptr[4:6]
    assert (
        page.evaluate(f"[...pyroPrme.data.counts.slice({start}, {end})]")
        == (137 * data.counts.data[start:end]).tolist()
    )
    assert page.evaluate(f"[...pyroPrme.data.words.slice({start}, {end})]") == data.counts.indices[start:end].tolist()


def test_texts_are_read_with_their_words_coloured(pages, shape_fit, tmp_path):
    posterior, corpus = shape_fit
    texts = [f"<b>Text</b> {n}: A0 and b3,\nunknown words." for n in range(60)]
    page = pages.open(explore(posterior, corpus, tmp_path / "p.html", texts=texts), "#document=9&tab=document")
    assert page.inner_text("#text") == texts[9]
    assert page.locator("#text .token").all_inner_texts() == []  # a0 is no run of letters
    words = tuple(f"{word[0] * 3}{chr(97 + i)}" for i, word in enumerate(corpus.vocabulary))
    renamed = dataclasses.replace(
        page_data(posterior, corpus, texts=[f"{words[0].upper()}, {words[9]}!"] * 60), vocabulary=words
    )
    (tmp_path / "q.html").write_text(page_html(renamed))
    page = pages.open(tmp_path / "q.html", "#document=9&tab=document")
    assert page.locator("#text .token").all_inner_texts() == [words[0].upper(), words[9]]
    with pytest.raises(ValueError, match="2 texts for 60 documents"):
        explore(posterior, corpus, tmp_path / "p.html", texts=texts[:2])


def test_a_document_without_words_and_a_model_without_places_are_shown(pages, shape_page, hdp_page):
    page = pages.open(shape_page, "#document=7&tab=document")
    assert "0 words" in page.inner_text("#moved")
    page = pages.open(hdp_page, "#document=3&tab=document")
    assert "Drag" not in page.inner_text("#panel-document")
    page.keyboard.press("/")
    assert page.locator("#topics canvas").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 400, 900, 1400, 1920])
def test_nothing_is_wider_than_the_window(pages, shape_page, width):
    """A window of 320 pixels is what a zoom of 400% makes of one of 1,280."""
    for tab in ("topic", "document", "word", "correlations", "topics"):
        page = pages.open(shape_page, f"#tab={tab}&document=1&word=a1", viewport={"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".topics").is_visible() == (width >= 1280 or tab == "topics")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_no_finding_of_axe(pages, axe, shape_page, scheme, width):
    for tab in ("topic", "document", "word", "correlations", "topics"):
        link = f"#tab={tab}&document=1&word=a1&with=1&topic=0"
        page = pages.open(shape_page, link, color_scheme=scheme, viewport={"width": width, "height": 900})
        page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        page.wait_for_timeout(400)  # until transitions have ended
        assert axe(page) == []


def test_dark_and_light_change_on_demand_and_motion_is_reduced(pages, shape_page):
    page = pages.open(shape_page, color_scheme="dark", reduced_motion="reduce")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert re.match("0s|none|all 0s|all", page.evaluate("getComputedStyle(document.querySelector('.lit')).transition"))
