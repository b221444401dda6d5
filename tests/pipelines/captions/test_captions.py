"""Captions: measurements of posters, statuses of broken ones, and requests to models."""

from __future__ import annotations

import hashlib
import io
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from support.small_release import commit_users

import pipelines.captions as posters_module
from pipelines.captions import (
    Caption,
    ModelCaptioner,
    StatisticalCaptioner,
    caption_items,
    image_statistics,
    open_captioner,
    posters_digest,
    read_image,
    read_posters,
)
from pipelines.captions.testing import check_captioner, poster_of
from pipelines.config import load_settings
from pipelines.context import PipelineContext
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, ContractError
from pipelines.llm.engines import Answer
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.stages import build, stage_of
from pipelines.statuses import CAPTION_STATUSES
from pipelines.worlds import prepare_world


def picture(*rows: str, scale: int = 8) -> Pillow.Image:
    """A picture of coloured squares: one letter each, a row per string."""
    known = {"k": (10, 10, 10), "w": (250, 250, 250), "r": (220, 20, 20), "b": (30, 70, 200)}
    cells = np.array([[known[c] for c in row] for row in rows], np.uint8)
    return Pillow.fromarray(np.repeat(np.repeat(cells, scale, axis=0), scale, axis=1))


def saved(image: Pillow.Image, kind: str = "PNG", **how) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def test_colours_are_named_by_their_shares():
    """Eight squares: four black, three red, one blue."""
    statistics = image_statistics(picture("kkrr", "kkrb"))
    assert statistics.colours == (("black", 0.5), ("red", 0.375), ("blue", 0.125))


def test_brightness_and_contrast_are_worked_out_by_hand():
    """Half of the pixels at luma 10/255, half at 250/255: mean 130/255, deviation 120/255."""
    statistics = image_statistics(picture("kw", "wk"))
    assert statistics.brightness == pytest.approx(130 / 255)
    assert statistics.contrast == pytest.approx(120 / 255)
    assert statistics.colourfulness == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("rgb", "name"),
    [((0, 0, 0), "black"), ((255, 255, 255), "white"), ((230, 30, 30), "red"),
     ((20, 30, 90), "dark blue"), ((100, 65, 40), "brown"), ((130, 130, 130), "grey")],
)  # fmt: skip
def test_colours_have_the_name_that_people_give_them(rgb, name):
    assert image_statistics(Pillow.new("RGB", (2, 2), rgb)).colours == ((name, 1.0),)


def test_a_caption_says_what_was_measured():
    poster = poster_of("black")
    (found,) = StatisticalCaptioner().caption([poster])
    assert found == Caption("ok", "Poster mostly in black; dark, low contrast, not colourful.")


@pytest.mark.parametrize(
    "captioner", [StatisticalCaptioner(), ModelCaptioner(ScriptedEngine(images=True))]
)
def test_captioners_keep_the_contract(captioner):
    check_captioner(captioner)


# Broken posters.


def animated() -> bytes:
    frames = [picture("r"), picture("b")]
    return saved(frames[0], "GIF", save_all=True, append_images=frames[1:])


def world(folder: Path, **files: bytes) -> Path:
    (folder / "posters").mkdir(parents=True)
    for name, data in files.items():
        (folder / "posters" / f"{name.removeprefix('p')}.jpg").write_bytes(data)
    return folder


BROKEN = {
    "truncated": (saved(picture("rb" * 40, scale=9), "JPEG")[:-400], "corrupt"),
    "text": (b"<html>not found</html>", "corrupt"),
    "empty": (b"", "corrupt"),
    "animated": (animated(), "animated"),
    "cmyk": (saved(picture("rb").convert("CMYK"), "JPEG"), "cmyk"),
    "program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n", "corrupt"),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_poster_has_a_status_and_no_caption(name, tmp_path):
    data, status = BROKEN[name]
    folder = world(tmp_path, p1=data, p2=saved(picture("r"), "JPEG"))
    table = caption_items(folder, ["ml:1", "ml:2"], StatisticalCaptioner())
    first, second = table.rows(named=True)
    assert (first["status"], first["caption"]) == (status, None)
    assert first["image_sha256"] == hashlib.sha256(data).hexdigest()
    assert second["status"] == "ok"


@pytest.mark.faults
def test_a_huge_poster_is_not_decoded(tmp_path, monkeypatch):
    """A header that promises 60,000 × 60,000 pixels, and a file of many bytes."""
    many = bytearray(saved(picture("r"), "PNG"))
    many[16:24] = (60_000).to_bytes(4) * 2
    many[29:33] = zlib.crc32(many[12:29]).to_bytes(4)
    assert read_image(bytes(many)) == "too_large"
    wide = saved(Pillow.new("L", (9_000, 5_000)), "PNG")
    assert read_image(wide) == "too_large"
    monkeypatch.setattr(posters_module, "_MAX_BYTES", 50)
    folder = world(tmp_path, p1=saved(picture("rb"), "PNG"))
    (row,) = caption_items(folder, ["ml:1"], StatisticalCaptioner()).rows(named=True)
    assert (row["status"], row["image_sha256"]) == ("too_large", None)


@pytest.mark.faults
def test_a_poster_outside_the_folder_is_not_read(tmp_path):
    folder = world(tmp_path / "world", p1=saved(picture("r")))
    (tmp_path / "secret.jpg").write_bytes(saved(picture("b")))
    (folder / "posters" / "2.jpg").symlink_to(tmp_path / "secret.jpg")
    found = read_posters(folder, ["ml:1", "ml:2", "ml:../../secret", "ml:3", "ml:"])
    assert [p.status for p in found] == ["ok", "missing", "missing", "missing", "missing"]


# The table.


def test_every_item_has_one_row_that_meets_the_contract(tmp_path):
    folder = world(tmp_path, p1=saved(picture("r"), "JPEG"), p3=b"torn")
    table = caption_items(folder, ["ml:3", "ml:2", "ml:1"], StatisticalCaptioner())
    CONTRACTS["movies.captions"].validate(table)
    assert table["item_id"].to_list() == ["ml:1", "ml:2", "ml:3"]
    assert table["status"].to_list() == ["ok", "missing", "corrupt"]
    assert set(table["captioner"]) == {"statistical"}


def test_the_contract_knows_every_status():
    table = pl.DataFrame(
        {
            "item_id": [f"ml:{n}" for n in range(len(CAPTION_STATUSES))],
            "caption": [None if s != "ok" else "A picture." for s in CAPTION_STATUSES],
            "captioner": "statistical",
            "image_sha256": pl.Series([None] * len(CAPTION_STATUSES), dtype=pl.String),
            "status": CAPTION_STATUSES,
        }
    )
    CONTRACTS["movies.captions"].validate(table)
    with pytest.raises(ContractError, match="caption_by_status"):
        CONTRACTS["movies.captions"].validate(table.with_columns(caption=pl.lit("A picture.")))


def test_posters_are_identified_by_names_and_contents(tmp_path):
    one = posters_digest(world(tmp_path / "a", p1=b"x", p2=b"y"))
    assert posters_digest(world(tmp_path / "b", p2=b"y", p1=b"x")) == one
    assert posters_digest(world(tmp_path / "c", p2=b"x", p1=b"y")) != one
    assert posters_digest(tmp_path / "none") == ""


class Wrong:
    name = "wrong"

    def __init__(self, *captions: Caption) -> None:
        self.captions = list(captions)

    def caption(self, posters):
        return self.captions

    def metadata(self):
        return {}


# Opening.


def test_captioners_are_opened_by_name_and_by_class():
    assert open_captioner(load_settings()).name == "statistical"
    own = open_captioner(load_settings(), f"{__name__}:Wrong")
    assert own.name == "wrong"
    with pytest.raises(ConfigError, match="unknown captioner"):
        open_captioner(load_settings(), "statistic")
    with pytest.raises(ConfigError, match="no caption and no metadata"):
        open_captioner(load_settings(), f"{__name__}:Caption")


# The model.


def test_a_model_is_shown_the_picture_and_not_its_title():
    asked = []

    def rule(request):
        asked.append(request)
        return "A red square on a plain ground, calm and empty."

    captioner = ModelCaptioner(ScriptedEngine(rule, images=True))
    (found,) = captioner.caption([poster_of("red", "ml:862", size=(900, 600))])
    assert found == Caption("ok", "A red square on a plain ground, calm and empty.")
    (image,) = asked[0].messages[1].images
    assert image.media_type == "image/jpeg"
    with Pillow.open(io.BytesIO(image.data)) as sent:
        assert sent.size == (512, 341)
        assert image_statistics(sent).colours[0][0] == "red"
    assert "862" not in "".join(m.content for m in asked[0].messages)


def test_a_reply_that_can_t_be_used_is_a_status():
    replies = iter(["", "refused"])

    def rule(request):
        reply = next(replies)
        return Answer(request, "refused") if reply == "refused" else reply

    captioner = ModelCaptioner(ScriptedEngine(rule, images=True, window=1))
    found = captioner.caption([poster_of("red"), poster_of("blue", "ml:2")])
    assert [c.status for c in found] == ["invalid", "refused"]
    assert [c.text for c in found] == [None, None]


@pytest.mark.shared_data
def test_real_posters_have_captions(shared_data: Path):
    numbers = sorted(p.stem for p in (shared_data / "posters").glob("*.jpg"))
    table = caption_items(shared_data, [f"ml:{n}" for n in numbers], StatisticalCaptioner())
    assert set(table["status"]) == {"ok"}
    assert table["caption"].n_unique() > len(numbers) / 2


@pytest.mark.shared_data
def test_the_stage_captions_the_items_of_a_given_world(shared_data: Path, tmp_path: Path):
    """Built twice: the second time the table is reused; another captioner makes it anew."""
    data = tmp_path / "data"
    settings = {"world": {"folder": data}, "runtime": {"home": tmp_path / "home"}}
    context = PipelineContext(settings)
    commit_users(context.store, "movies", stated=True)
    items = context.store.current("movies.items").read()["item_id"].sort().to_list()
    world(data, **{f"p{i.rpartition(':')[2]}": saved(picture("rb"), "JPEG") for i in items[:2]})
    (data / "movielens").mkdir()
    archive = "ml-latest-small.zip"
    (data / "movielens" / archive).write_bytes((shared_data / "movielens" / archive).read_bytes())
    stage = stage_of("movies.captions")
    assert stage.left_out(context.settings, None) is None
    first = build(stage, context)
    rows = first.snapshots["movies.captions"].read()
    assert rows["item_id"].to_list() == items
    assert rows["status"].to_list() == ["ok"] * 2 + ["missing"] * (len(items) - 2)
    assert build(stage, context).reused
    own = PipelineContext({**settings, "captions": {"captioner": f"{__name__}:Plain"}})
    assert not build(stage, own).reused
    unread = prepare_world(context.settings).unread
    assert not any(name.startswith("posters") for name in unread)


class Plain:
    name = "plain"

    def caption(self, posters):
        return [Caption("ok", "A poster.") for _ in posters]

    def metadata(self):
        return {}
