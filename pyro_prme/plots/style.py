"""One style for the pictures of a course: open this to draw pictures that look like those of the tutorials.

Whatever a colour tells apart, a dash, a mark or a hatch tells apart as well, for copies in grey and for people who do
not see all colours.
"""

from __future__ import annotations

from pyro_prme.plots._common import OKABE_ITO, mark_negative

__all__ = [
    "BLUE",
    "COLOURS",
    "GREEN",
    "HATCHES",
    "MARKS",
    "ORANGE",
    "PINK",
    "SKY",
    "STYLES",
    "YELLOW",
    "mark_negative",
    "use_style",
]

BLUE, ORANGE, GREEN, PINK, SKY, YELLOW = OKABE_ITO
#: The first four colours, and a dash, a mark and a hatch to go with each.
COLOURS = OKABE_ITO[:4]
STYLES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D")
HATCHES = ("", "////", "....", "xxxx")


def use_style(dpi: int = 90) -> None:
    """Sets matplotlib's defaults for this process: axes with two sides, at this resolution.

    Args:
        dpi: dots per inch on the screen.

    Example:
        >>> use_style()
    """
    import matplotlib.pyplot as plt

    plt.rcParams.update({"figure.dpi": dpi, "axes.spines.top": False, "axes.spines.right": False})
