"""A page to explore a fitted model with, one file that needs no network: open this to hand topics to someone else."""

from pyro_prme.explorer.page_data import PageData, page_data
from pyro_prme.explorer.writing import explore, page_html

__all__ = ["PageData", "explore", "page_data", "page_html"]
