"""Faults put in on purpose, to see whether the tests notice: `make mutants`."""
