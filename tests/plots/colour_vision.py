"""Pictures as they look in grey and to people who do not tell all colours apart, for looking and for tests.

    python -m tests.plots.colour_vision [folder or notebook ...] --out build/colour_vision

writes one sheet for each picture of the notebooks (and each image file of a folder given): as it is, in grey, and as
seen without the cones for red (protanopia) and for green (deuteranopia). Look at each sheet: whatever a picture says
has to be readable in all four. The matrices are those of Machado, Oliveira and Fernandes (2009), severity one.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[2]

#: By kind: linear red, green and blue that are seen, a row each, from those that are shown.
MATRICES: dict[str, np.ndarray] = {
    "grey": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}


def linear(colours: np.ndarray) -> np.ndarray:
    """Linear light of sRGB values from 0 to 1."""
    return np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)


def encoded(light: np.ndarray) -> np.ndarray:
    """sRGB values from 0 to 1 of linear light."""
    light = np.clip(light, 0, 1)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def seen(colours: np.ndarray, kind: str) -> np.ndarray:
    """sRGB values (..., 3) as they look to someone with this kind of vision."""
    return encoded(linear(np.asarray(colours, float)) @ MATRICES[kind].T)


def lab(colours: np.ndarray) -> np.ndarray:
    """CIELAB values (..., 3) of sRGB values: a distance of one is about the smallest that can be seen."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear(np.asarray(colours, float)) @ to_xyz.T / to_xyz.sum(1)  # relative to white
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)


def sheet(picture: Image.Image, width: int = 800) -> Image.Image:
    """Four versions of a picture in two rows: as it is, in grey, without red and without green cones."""
    picture = picture.convert("RGB")
    picture.thumbnail((width, width))
    shown = np.asarray(picture) / 255
    versions = [shown, *(seen(shown, kind) for kind in MATRICES)]
    rows = [np.hstack(versions[i : i + 2]) for i in (0, 2)]
    return Image.fromarray((np.vstack(rows) * 255).round().astype(np.uint8))


def pictures(path: Path) -> Iterator[tuple[str, Image.Image]]:
    """Name and picture of each output of a notebook, or of each image file of a folder."""
    if path.is_dir():
        for file in sorted(path.glob("*.png")):
            yield file.stem, Image.open(file)
        return
    for i, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        for output in cell.get("outputs", []):
            if png := output.get("data", {}).get("image/png"):
                yield f"{path.stem}_{i:02d}", Image.open(io.BytesIO(base64.b64decode("".join(png))))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("sources", nargs="*", type=Path, help="notebooks, or folders with PNG files")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "colour_vision")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    own = [*sorted((ROOT / "tutorials").glob("*.ipynb")), Path(__file__).parents[1] / "reference_images"]
    for source in chosen.sources or own:
        for name, picture in pictures(source):
            sheet(picture).save(chosen.out / f"{name}.png")
    print(f"{len(list(chosen.out.glob('*.png')))} sheets are in {chosen.out}.")


if __name__ == "__main__":
    main()
