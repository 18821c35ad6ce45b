"""What the tests of pictures share: a fit with every number set by hand, and the comparison with reference images."""

import os
from pathlib import Path

import numpy as np
import torch

import pyro_prme as prme

IMAGES = Path(__file__).parents[1] / "reference_images"
WORDS = ("ark", "bee", "cow", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kid", "lamb")
TOPICS = np.kron(np.eye(4), np.ones(3)) + 0.02


def posterior_of(corpus, model="prme", num_topics=4, vocabulary=WORDS, **settings):
    """A model whose every number is set by hand, so that pictures are the same everywhere."""
    program, guide = prme.build(num_topics, corpus.vocab_size, len(corpus), model=model, embedding_dim=3, **settings)
    guide.plan(prme.Batch.from_csr(corpus.counts, [0, 1]))
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for part in (program, guide):
            for name, parameter in sorted(part.named_parameters()):
                scale = 1.5 / np.sqrt(parameter.shape[-1]) if parameter.dim() > 1 else 0.3
                parameter.copy_(torch.as_tensor(rng.normal(size=tuple(parameter.shape)) * scale + ("norm" in name)))
        guide.claim("V").set(torch.tensor([0.4, 0.45, 0.5, 0.5, 0.5])[: num_topics - 1])
        gamma = np.resize(TOPICS, (num_topics, 12)) * np.array([300, 200, 100, 50, 1, 1])[:num_topics, None] + 0.2
        guide.topics.set(torch.as_tensor(gamma.T))
    return prme.Posterior(guide, vocabulary=vocabulary)


def same_image(ax, name, tmp_path, tolerance=5.0):
    """Nothing is cut off at the figure's edge, and the figure is near the stored one.

    Layouts and colours must agree; fonts may be rendered a little differently.
    """
    from matplotlib.testing.compare import compare_images

    inside(ax.figure)
    path = IMAGES / f"{name}.png"
    drawn = path if os.environ.get("PRME_WRITE_IMAGES") else tmp_path / f"{name}.png"
    ax.figure.savefig(drawn, dpi=55, metadata={"Software": None})
    assert drawn == path or compare_images(str(path), str(drawn), tolerance) is None


def inside(figure):
    """All that is drawn lies within the figure."""
    figure.canvas.draw()
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(drawn.x0, drawn.y0) > -0.02
    assert drawn.x1 < width + 0.02
    assert drawn.y1 < height + 0.02
