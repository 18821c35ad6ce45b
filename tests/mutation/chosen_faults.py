"""Faults in the wiring, each of which once went unnoticed or easily could: a place, what is right, and what is wrong.

A place that is gone is an error of `make mutants`: look where the line went, and break it there.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CHOSEN", "Chosen"]


class Chosen(NamedTuple):
    """A fault."""

    what: str
    path: str
    right: str
    wrong: str


CHOSEN = (
    Chosen(
        "batches of the running bound are weighted equally",
        "pyro_prme/inference/underway.py",
        "rows / size * term",
        "term",
    ),
    Chosen(
        "a seed weighs a document and not ten tokens of each",
        "pyro_prme/inference/topic_starts.py",
        "_TOKENS_A_DOCUMENT * counts.shape[0] / num_topics",
        "1.0",
    ),
    Chosen(
        "the posterior's E-steps stop early",
        "pyro_prme/answers/sites.py",
        "CONVERGED = RunOptions(sweeps=200, word_tolerance=1e-4)",
        "CONVERGED = RunOptions(sweeps=2)",
    ),
    Chosen(
        "each batch counts as the whole corpus in batch mode",
        "pyro_prme/inference/trainer.py",
        "share if online else share * len(rows) / len(self.data)",
        "share",
    ),
    Chosen(
        "gradient steps do not hold what the E-step found",
        "pyro_prme/inference/trainer.py",
        "held, ease = RunOptions(held=run.local), self._ease()",
        "held, ease = RunOptions(), self._ease()",
    ),
    Chosen(
        "a claim's own learning rate is not used",
        "pyro_prme/inference/optimisers.py",
        '"lr": claim.learning_rate, "weight_decay": 0.0',
        '"lr": learning_rate, "weight_decay": 0.0',
    ),
    Chosen(
        "weight decay reaches the sticks",
        "pyro_prme/inference/optimisers.py",
        '"lr": claim.learning_rate, "weight_decay": 0.0',
        '"lr": claim.learning_rate, "weight_decay": weight_decay',
    ),
    Chosen(
        "the start does not centre ell",
        "pyro_prme/inference/topic_guide.py",
        "    roots -= roots.mean(0)\n",
        "",
    ),
    Chosen(
        "the start takes no square roots for ell",
        "pyro_prme/inference/topic_guide.py",
        "roots = np.sqrt(centres)",
        "roots = centres.copy()",
    ),
    Chosen(
        "k-means takes no square roots",
        "pyro_prme/inference/topic_starts.py",
        "_lloyd(frequencies.sqrt(), num_topics, rng)",
        "_lloyd(frequencies, num_topics, rng)",
    ),
    Chosen(
        "a point has no Jacobian",
        "pyro_prme/inference/rules/point.py",
        "        if not self.with_jacobian:\n            return None",
        "        if True:\n            return None",
    ),
    Chosen(
        "a point is kept for a subsampled plate",
        "pyro_prme/inference/rules/point.py",
        "any(frame.size != frame.full_size for frame in",
        "any(False for frame in",
    ),
    Chosen(
        "hidden words are not made up for in the length that g sees",
        "pyro_prme/models/networks/encoders.py",
        "kept = 1 - word_dropout * torch.rand(",
        "kept = 1 - 0.5 * word_dropout * torch.rand(",
    ),
    Chosen(
        "a natural step goes all the way",
        "pyro_prme/inference/rules/conjugate.py",
        "target if rate == 1 else",
        "target if rate > 0 else",
    ),
    Chosen(
        "pending statistics are replaced and not added",
        "pyro_prme/inference/rules/conjugate.py",
        "key: share * part if pending is None else pending[key] + share * part",
        "key: share * part",
    ),
    Chosen(
        "the size of the corpus is left out of the topics' statistics",
        "pyro_prme/inference/rules/topics/claim.py",
        "found.step.statistics, share * found.weight)",
        "found.step.statistics, share)",
    ),
    Chosen(
        "batches are weighted equally in recentring",
        "pyro_prme/models/prme.py",
        "torch.stack([size / num * mean for size, mean in means]).sum(0)",
        "torch.stack([mean for _, mean in means]).mean(0)",
    ),
    Chosen(
        "the decoder is not recentred after an epoch",
        "pyro_prme/inference/trainer.py",
        "            self.guide.after_epoch(self.data)\n        terms",
        "        terms",
    ),
    Chosen(
        "batches of a fit's bound are weighted equally",
        "pyro_prme/inference/fit.py",
        "total += share * self.step(",
        "total += self.step(",
    ),
    Chosen(
        "batches of the bound at the end are weighted equally",
        "pyro_prme/inference/trainer.py",
        "totals[name] = totals.get(name, 0.0) + share * term\n            totals |=",
        "totals[name] = totals.get(name, 0.0) + term\n            totals |=",
    ),
    Chosen(
        "the rate of natural steps does not fall",
        "pyro_prme/inference/trainer.py",
        "robbins_monro_rate(self.steps,",
        "robbins_monro_rate(1,",
    ),
    Chosen(
        "batch mode makes a natural step after each batch",
        "pyro_prme/inference/trainer.py",
        "        if online:\n            rate",
        "        if True:\n            rate",
    ),
    Chosen(
        "gradients of earlier steps stay",
        "pyro_prme/inference/trainer.py",
        "                    optimiser.zero_grad()\n",
        "                    pass\n",
    ),
    Chosen(
        "E-steps are made in training mode",
        "pyro_prme/inference/trainer.py",
        "        with evaluating(self.guide.model, self.guide), pyro.validation_enabled(False):\n            try:",
        "        with pyro.validation_enabled(False):\n            try:",
    ),
    Chosen(
        "slow terms are added with each batch",
        "pyro_prme/inference/trainer.py",
        "run.terms(slow=slow).items()",
        "run.terms().items()",
    ),
    Chosen(
        "weight decay reaches all but what has its own rate with half its size",
        "pyro_prme/inference/optimisers.py",
        '"lr": learning_rate, "weight_decay": weight_decay}',
        '"lr": learning_rate, "weight_decay": 0.5 * weight_decay}',
    ),
    Chosen(
        "embeddings have a learning rate of their own",
        "pyro_prme/inference/optimisers.py",
        "LazyAdam(wide, lr=learning_rate)",
        "LazyAdam(wide, lr=0.5 * learning_rate)",
    ),
    Chosen(
        "the sticks start at equal weights",
        "pyro_prme/inference/topic_guide.py",
        "torch.as_tensor(shares + 0.1 / num_topics",
        "torch.as_tensor(0 * shares + 0.1 / num_topics",
    ),
    Chosen(
        "a gradient step sees the whole document that it completes",
        "pyro_prme/inference/topic_guide.py",
        "arg.showing(hide_words(arg, 1.0)) if isinstance(arg, Batch) else arg",
        "arg",
    ),
    Chosen(
        "an entropy is not weighted by its plate",
        "pyro_prme/inference/run.py",
        "(log_q.expand(self.site.fn.batch_shape) * self.site.weight).sum()",
        "log_q.expand(self.site.fn.batch_shape).sum()",
    ),
    Chosen(
        "a divergence is not weighted by its plate",
        "pyro_prme/inference/run.py",
        "(kl_divergence(self.posterior, self.site.fn) * self.site.weight).sum()",
        "kl_divergence(self.posterior, self.site.fn).sum()",
    ),
    Chosen(
        "the best of several starts is the last",
        "pyro_prme/inference/fit.py",
        "best is None or result.bound > best[0].bound",
        "True",
    ),
)
