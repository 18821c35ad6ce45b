"""Tells whether a rule of one's own is right. Use it when you have written a `Rule` and before you trust its numbers.

A rule is right when its posterior maximises the bound given the others, its term is what draws say it is, and its
terms and statistics on batches average to those of the whole. `check_rule` looks at all three.
"""

from pyro_prme.testing.check import check_rule
from pyro_prme.testing.report import Check, RuleError, RuleReport

__all__ = ["Check", "RuleError", "RuleReport", "check_rule"]
