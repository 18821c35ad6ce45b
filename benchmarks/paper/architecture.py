"""Depth and width of PRME's networks on nyt (paper, Tables 4 and 5), three seeds a cell, with slopes.

    python benchmarks/paper/architecture.py --seeds 0 1 2

adds each fit to results/architecture.json as it ends, and prints both tables and, for each design, the slope of
perplexity over doublings of depth or width with its standard error. Networks are those of the paper's Table 3: g reads
the bag of words and is 1000 wide, f is 80 wide. The paper trains for longer at a rate of 1e-4; here 40 epochs at the
library's rate, f in the scale, word dropout on.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from experiment import OBSERVED, RESULTS, add, average, is_there, measured, parser, recorded

PATH = RESULTS / "architecture.json"
DESIGNS = {"MLP": (False, False), "MLP+BN": (True, False), "ResNet": (False, True), "ResNet+BN": (True, True)}
DEPTHS, WIDTHS = (2, 4, 6, 8), (2, 5, 10, 20)
CELLS = [*((depth, 20) for depth in DEPTHS), *((4, width) for width in WIDTHS[:-1])]  # (depth, d_h = d_ell)


def settings_of(design: str, depth: int, width: int) -> dict:
    """The networks of the paper's Table 3 as settings of `build`."""
    batch_norm, residual = DESIGNS[design]
    return {
        "form": "scale",
        "encoder": "words",
        "encoder_hidden": (1000,) * (depth // 2 - 1),
        "decoder_hidden": (80,) * (depth // 2),
        "embedding_dim": width,
        "batch_norm": batch_norm,
        "residual": residual,
    }


def slope(points: list[tuple[float, float]]) -> str:
    """Least-squares slope of perplexity over log2 of the size, with its standard error."""
    x, y = np.log2([size for size, _ in points]), np.array([value for _, value in points])
    x = x - x.mean()
    rise = float(x @ y / (x @ x))
    rest = y - y.mean() - rise * x
    error = float(np.sqrt(rest @ rest / (len(y) - 2) / (x @ x)))
    return f"{rise:+.1f} ± {error:.1f}"


def table(records: list[dict], what: str, share: float) -> str:
    """Markdown for "depth" or "width"; the last row has the slopes a doubling."""
    fixed, sizes = (("width", 20), DEPTHS) if what == "depth" else (("depth", 4), WIDTHS)
    lines = [f"| {what} | {' | '.join(DESIGNS)} |", "|---:|" + "---:|" * len(DESIGNS)]
    here = [r for r in records if r[fixed[0]] == fixed[1]]
    for size in sizes:
        cells = [[r for r in here if (r["design"], r[what]) == (design, size)] for design in DESIGNS]
        lines.append(f"| {size} | {' | '.join(average(cell, share) if cell else '' for cell in cells)} |")
    slopes = []
    for design in DESIGNS:
        points = [(r[what], r["perplexity"][str(share)]) for r in here if r["design"] == design]
        slopes.append(slope(points) if len(points) > 2 and len({x for x, _ in points}) > 1 else "")
    return "\n".join([*lines, f"| a doubling | {' | '.join(slopes)} |"])


def main() -> None:
    args = parser(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    for seed, (depth, width), design in product(args.seeds, CELLS, DESIGNS):
        key = {"design": design, "depth": depth, "width": width, "seed": seed}
        impossible = depth == 2 and DESIGNS[design][1]  # no residual form, the paper's N/A
        if not (args.report or impossible or is_there(PATH, key)):
            add(PATH, key | measured("nyt", "test", seed, **settings_of(design, depth, width)))
    for what, share in product(("depth", "width"), OBSERVED):
        print(f"\nPerplexity by {what}, {share:.0%} of a document's words observed\n")
        print(table(recorded(PATH), what, share))


if __name__ == "__main__":
    main()
