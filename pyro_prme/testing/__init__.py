"""Tells whether an update of one's own is right. Use it when you have written a `Rule`, or the formula of one factor.

The optimal factor of a site given the others is the derivative of the expected log joint, which is found from the model
itself and checked against its density. `check_rule` compares yours with it.
"""

from pyro_prme.testing.check import check_rule
from pyro_prme.testing.report import Check, RuleError, RuleReport

__all__ = ["Check", "RuleError", "RuleReport", "check_rule"]
