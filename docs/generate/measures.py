"""The table of random measures in TeX, from the catalogue's plain text."""

from __future__ import annotations

from pyro_prme.measures import catalogue

#: TeX of each cell of the columns T^-1 and f_n.
TEX: dict[str, str] = {
    "none: paint S_k": r"none: paint $S_k$",
    "none: blocks": "none: blocks",
    "none: V_k uniform": r"none: $V_k$ uniform",
    "numeric": "numeric",
    "identity": "identity",
    "sticks p": "sticks $p$",
    "sticks p, or any": "sticks $p$, or any",
    "E1^-1(v/M)": r"$E_1^{-1}(v/M)$",
    "E1^-1(v/M) / r": r"$E_1^{-1}(v/M) / r$",
    "exp(-v/M)": r"$e^{-v/M}$",
    "exp(-v/M), numeric": r"$e^{-v/M}$, numeric",
    "exp(-v/M) if c = 1": r"$e^{-v/M}$ if $c = 1$",
    "T^-1(v)": r"$T^{-1}(v)$",
    "1(u_n in S_k)": r"$\mathbb{1}(u_n \in S_k)$",
    "1(u_n in block k)": r"$\mathbb{1}(u_n \in \text{block } k)$",
    "1(R_nk < W(U_n, V_k))": r"$\mathbb{1}(R_{nk} < W(U_n, V_k))$",
    "Bernoulli(T^-1(v))": r"$\mathrm{Bernoulli}(T^{-1}(v))$",
    "Bernoulli(s(logit T^-1(v) + F_n))": r"$\mathrm{Bernoulli}(s(\mathrm{logit}\, T^{-1}(v) + F_n))$",
    "Poisson(T^-1(v) e^F_n)": r"$\mathrm{Poisson}(T^{-1}(v)\, e^{F_n})$",
    "Gamma(T^-1(v), e^F_n)": r"$\mathrm{Gamma}(T^{-1}(v),\, e^{F_n})$",
    "Gamma(beta T^-1(v), 1)": r"$\mathrm{Gamma}(\beta\, T^{-1}(v),\, 1)$",
    "Gamma(beta p, 1)": r"$\mathrm{Gamma}(\beta p,\, 1)$",
    "Gamma(beta p, e^(h_n . ell))": r"$\mathrm{Gamma}(\beta p,\, e^{h_n^\top \ell})$",
    "Gamma(beta p, e^f(h_n, ell))": r"$\mathrm{Gamma}(\beta p,\, e^{f(h_n, \ell)})$",
    "Gamma(beta p, e^f(h_t, ell))": r"$\mathrm{Gamma}(\beta p,\, e^{f(h_t, \ell)})$",
    "any f_n >= 0, g_m, lines, diffuse": r"any $f_n \ge 0$, $g_m$, lines, diffuse",
}


def table() -> str:
    """The catalogue as a Markdown table; a construction whose formula has no TeX yet stops the build."""
    rows = catalogue().to_dict("records")
    missing = sorted({row[column] for row in rows for column in ("T^-1", "f_n")} - TEX.keys())
    if missing:
        raise ValueError(f"The catalogue has formulas without TeX: add {missing} to TEX in docs/generate/measures.py.")
    lines = ["| construction | $T^{-1}$ | $f_n$ | section | function |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        cells = row["construction"], TEX[row["T^-1"]], TEX[row["f_n"]], row["section"], f"{{py:obj}}`{row['function']}`"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
