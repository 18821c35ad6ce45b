"""Which construction is which; open this to find the function for a name, or its place in the paper.

v is the position of a feature's point on the half line, M the mass, r the rate, c the concentration; the second
parameter of Gamma is a scale, s is the logistic function, app. the appendix. The sticks p are the normalised
E1^-1(v/alpha) in another order.

===================  ==================  =================================  ===========  ==============================
construction         T^-1                f_n                                section      function
===================  ==================  =================================  ===========  ==============================
Feature paintbox     none: paint S_k     1(u_n in S_k)                      1, Alg. 1    random_paintbox
Partition paintbox   none: blocks        1(u_n in block k)                  1, Fig. 1    PartitionPaintbox
Gamma process        E1^-1(v/M) / r      T^-1(v)                            3.2, app.    completely_random_measure
Generalised gamma    numeric             T^-1(v)                            3.2, app.    completely_random_measure
Beta process         exp(-v/M) if c = 1  T^-1(v)                            3.2, app.    completely_random_measure
Stable-beta process  numeric             T^-1(v)                            3.2, app.    completely_random_measure
Indian buffet        exp(-v/M)           Bernoulli(T^-1(v))                 app., IBP    buffet_strip
Three-par. buffet    numeric             Bernoulli(T^-1(v))                 app., IBP    buffet_strip
Hierarchical gamma   E1^-1(v/M)          Gamma(beta T^-1(v), 1)             3.2, 4.1     hierarchical_gamma_process
Hierarchical DP      sticks p            Gamma(beta p, 1)                   3.2, 4.1     hierarchical_dirichlet_process
DILN                 sticks p            Gamma(beta p, e^(h_n . ell))       app., corr.  diln
PRME                 sticks p, or any    Gamma(beta p, e^f(h_n, ell))       3.1, 4.1     prme
Corr. binary         exp(-v/M), numeric  Bernoulli(s(logit T^-1(v) + F_n))  app., corr.  correlated_measure
Corr. discrete       E1^-1(v/M)          Poisson(T^-1(v) e^F_n)             app., corr.  correlated_measure
Corr. continuous     E1^-1(v/M)          Gamma(T^-1(v), e^F_n)              app., corr.  correlated_measure
Kallenberg's         identity            any f_n >= 0, g_m, lines, diffuse  3.1, app.    kallenberg_measure
Graphon              none: V_k uniform   1(R_nk < W(U_n, V_k))              2, app.      graphon
Drifting PRME        sticks p, or any    Gamma(beta p, e^f(h_t, ell))       6.1          drifting_prme
===================  ==================  =================================  ===========  ==============================
"""

from __future__ import annotations

import pandas as pd

__all__ = ["catalogue"]

COLUMNS = ("construction", "T^-1", "f_n", "section", "function")
ROWS = (
    ("Feature paintbox", "none: paint S_k", "1(u_n in S_k)", "1, Alg. 1", "random_paintbox"),
    ("Partition paintbox", "none: blocks", "1(u_n in block k)", "1, Fig. 1", "PartitionPaintbox"),
    ("Gamma process", "E1^-1(v/M) / r", "T^-1(v)", "3.2, app.", "completely_random_measure"),
    ("Generalised gamma", "numeric", "T^-1(v)", "3.2, app.", "completely_random_measure"),
    ("Beta process", "exp(-v/M) if c = 1", "T^-1(v)", "3.2, app.", "completely_random_measure"),
    ("Stable-beta process", "numeric", "T^-1(v)", "3.2, app.", "completely_random_measure"),
    ("Indian buffet", "exp(-v/M)", "Bernoulli(T^-1(v))", "app., IBP", "buffet_strip"),
    ("Three-par. buffet", "numeric", "Bernoulli(T^-1(v))", "app., IBP", "buffet_strip"),
    ("Hierarchical gamma", "E1^-1(v/M)", "Gamma(beta T^-1(v), 1)", "3.2, 4.1", "hierarchical_gamma_process"),
    ("Hierarchical DP", "sticks p", "Gamma(beta p, 1)", "3.2, 4.1", "hierarchical_dirichlet_process"),
    ("DILN", "sticks p", "Gamma(beta p, e^(h_n . ell))", "app., corr.", "diln"),
    ("PRME", "sticks p, or any", "Gamma(beta p, e^f(h_n, ell))", "3.1, 4.1", "prme"),
    ("Corr. binary", "exp(-v/M), numeric", "Bernoulli(s(logit T^-1(v) + F_n))", "app., corr.", "correlated_measure"),
    ("Corr. discrete", "E1^-1(v/M)", "Poisson(T^-1(v) e^F_n)", "app., corr.", "correlated_measure"),
    ("Corr. continuous", "E1^-1(v/M)", "Gamma(T^-1(v), e^F_n)", "app., corr.", "correlated_measure"),
    ("Kallenberg's", "identity", "any f_n >= 0, g_m, lines, diffuse", "3.1, app.", "kallenberg_measure"),
    ("Graphon", "none: V_k uniform", "1(R_nk < W(U_n, V_k))", "2, app.", "graphon"),
    ("Drifting PRME", "sticks p, or any", "Gamma(beta p, e^f(h_t, ell))", "6.1", "drifting_prme"),
)


def catalogue() -> pd.DataFrame:
    """The table above: construction, its inverse tail, its f_n, section of the paper, function of this package."""
    return pd.DataFrame(list(ROWS), columns=list(COLUMNS))
