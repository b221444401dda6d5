"""Posters of a world: ``posters/<id>.jpg`` beside its sources, read as untrusted files."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

#: Folder of a world that holds posters.
POSTERS = "posters"
#: Largest poster (bytes, pixels); the largest of film databases are about 2000 × 3000.
_MAX_BYTES = 32 * 2**20
_MAX_PIXELS = 40_000_000
#: Decoded formats, whatever the file's suffix: none of them runs another program.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
_ID = re.compile(r"[\w-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Poster:
    """Poster file of an item."""

    item_id: str
    #: Bytes of the file; empty unless `status` is `ok`.
    data: bytes
    #: SHA-256 (hex) of the file; None where there is none or it is too large to be read.
    sha256: str | None
    #: `ok`, or why there is no picture to look at.
    status: str


def read_posters(folder: Path, items: Sequence[str]) -> Iterator[Poster]:
    """The posters of some items in the world's folder, in their order.

    An id without the source's prefix is the file's name: ``ml:1`` is ``posters/1.jpg``. A link that
    leads out of the folder is not followed.
    """
    root = (folder / POSTERS).resolve()
    for item in items:
        number = item.rpartition(":")[2]
        path = (root / f"{number}.jpg").resolve()
        if not _ID.fullmatch(number) or not path.is_relative_to(root) or not path.is_file():
            yield Poster(item, b"", None, "missing")
        elif path.stat().st_size > _MAX_BYTES:
            yield Poster(item, b"", None, "too_large")
        else:
            data = path.read_bytes()
            found = read_image(data)
            status = found if isinstance(found, str) else "ok"
            digest = hashlib.sha256(data).hexdigest()
            yield Poster(item, data if status == "ok" else b"", digest, status)


def read_image(data: bytes) -> Image.Image | str:
    """The picture in a file as RGB, or the status if there is none.

    >>> read_image(b"no picture")
    'corrupt'
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Pillow warns of many pixels; the limit here is stricter.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                # From the header: nothing is decoded before it is known to be small enough.
                if image.width * image.height > _MAX_PIXELS:
                    return "too_large"
                if getattr(image, "n_frames", 1) > 1:
                    return "animated"
                if image.mode == "CMYK":
                    return "cmyk"
                image.load()
                return _opaque(image)
    except Image.DecompressionBombError:
        return "too_large"
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError):
        # Pillow raises SyntaxError for a broken PNG.
        return "corrupt"


def _opaque(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
    return image.convert("RGB")


def poster_files(folder: Path) -> list[Path]:
    """Posters of a world by name; none without the folder."""
    return sorted(path for path in (folder / POSTERS).glob("*.jpg") if path.is_file())


def posters_digest(folder: Path) -> str:
    """SHA-256 (hex) of the names and contents of a world's posters; "" without any."""
    files = poster_files(folder)
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.name}\0{content}\n".encode())
    return digest.hexdigest() if files else ""
