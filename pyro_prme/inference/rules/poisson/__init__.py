"""Fused updates for a Poisson factorisation of counts, claimed by the form of the expected densities."""

from pyro_prme.inference.rules.poisson.rule import PoissonSums

__all__ = ["PoissonSums"]
