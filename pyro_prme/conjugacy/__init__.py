"""Closed-form updates found in the structure of any Pyro model, whatever its sites are called.

One run of the model on random tensors gives its expected log joint as a sum of contractions of constants with the mean
parameters of the posterior factors. Everything else follows from it: updates, the bound, Gibbs sampling. Nothing here
knows of topics, and it can be used alone: open it to see what is found in a model, with `find_structure`.
"""

from pyro_prme.conjugacy.ascent import Ascent, Factors
from pyro_prme.conjugacy.grouping import Grouping, find_groups
from pyro_prme.conjugacy.program import Program
from pyro_prme.conjugacy.structure import Structure, find_structure

__all__ = ["Ascent", "Factors", "Grouping", "Program", "Structure", "find_groups", "find_structure"]
