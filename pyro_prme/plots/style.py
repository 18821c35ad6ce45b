"""One style for the pictures of a course: open this to draw pictures that look like those of the tutorials.

Whatever a colour tells apart, a dash, a mark or a hatch tells apart as well, for copies in grey and for people who do
not see all colours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyro_prme.plots._common import OKABE_ITO

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

#: The colour of this name.
BLUE = OKABE_ITO[0]
#: The colour of this name.
ORANGE = OKABE_ITO[1]
#: The colour of this name.
GREEN = OKABE_ITO[2]
#: The colour of this name.
PINK = OKABE_ITO[3]
#: The colour of this name.
SKY = OKABE_ITO[4]
#: The colour of this name.
YELLOW = OKABE_ITO[5]
#: The first four colours, and a dash, a mark and a hatch to go with each.
COLOURS = OKABE_ITO[:4]
#: Of lines, one for each colour, so that grey tells them apart.
STYLES = ("-", "--", "-.", ":")
#: Of points, likewise.
MARKS = ("o", "s", "^", "D")
#: Of areas, likewise.
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


def mark_negative(ax: Axes, values: np.ndarray, below: float, top: float, size: float = 10) -> None:
    """A minus in the cells of an image that are below a number, so that a copy in grey shows the sign too.

    Args:
        ax: of the image, one cell a unit.
        values: of the image, by row and column.
        below: cells with less than this get a minus.
        top: the largest absolute value of the colours; the minus is white on the darkest half of them.
        size: of the minus, in square points.
    """
    y, x = np.nonzero(values < below)
    ax.scatter(x, y, s=size, marker="_", lw=0.8, c=np.where(values[y, x] < -top / 2, "white", "black"))
