"""Own, other and blue posters beside what agents watch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.study import TooFew
from sim.experiments import ExperimentContext
from sim.experiments._thumbnails import (
    blue_tinted,
    captions_by_condition,
    thumbnails,
)
from sim.experiments.testing import fresh
from sim.metrics import Figure
from tests.sim.experiments.scripted import Studies, asking_a_model


def test_brains_that_see_nothing_are_placebos(studies: Studies) -> None:
    found = studies("thumbnails")
    assert found.counts["items"] == 13
    # The filter leaves the three white posters white.
    assert found.counts["captions changed by the filter"] == 10
    assert len(found.comparisons) == 2 * 2
    assert {(c.difference, c.p) for c in found.comparisons} == {(Figure(0.0, 0.0, 0.0), 1.0)}


def test_without_posters_there_is_no_figure(context: ExperimentContext, tmp_path: Path) -> None:
    for experiment in (thumbnails, thumbnails.configure(folder=tmp_path)):
        with pytest.raises(TooFew, match="0 items with a poster"):
            experiment.run(context)


def test_hues_move_towards_blue_on_the_shorter_way() -> None:
    """Red (0 degrees) goes back to 324: L 0.65 and S 1 give (1, 0.3, 0.72)."""
    red = blue_tinted(Image.new("RGB", (1, 1), (255, 0, 0)), (0.3, 0.3, 0.3)).getpixel((0, 0))
    assert red == pytest.approx((255, 76.5, 184), abs=1)
    # Green (120) goes on to 156: L 0.65, S 1, so (0.3, 1, 0.72).
    green = blue_tinted(Image.new("RGB", (1, 1), (0, 255, 0)), (0.3, 0.3, 0.3)).getpixel((0, 0))
    assert green == pytest.approx((76.5, 255, 184), abs=1)
    # A grey of 0.5: L 0.65 and S 0.3 of blue, so 0.65 -+ 0.105.
    grey = blue_tinted(Image.new("L", (1, 1), 128), (0.3, 0.3, 0.3)).getpixel((0, 0))
    assert grey == pytest.approx((139, 139, 193), abs=1)


def test_a_filter_without_strength_changes_nothing() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    # A grey has no hue to keep.
    pixels[..., 0] |= 1
    pixels[..., 1] &= 254
    same = blue_tinted(Image.fromarray(pixels), (0.0, 0.0, 0.0))
    assert np.array_equal(np.asarray(same), pixels)


def test_nobody_has_its_own_caption_as_anothers() -> None:
    own = {f"ml:{n}": str(n) for n in range(5)}
    found = captions_by_condition(own, {})
    assert all(found["another"][item] != own[item] for item in own)
    assert sorted(found["another"].values()) == sorted(own.values())


def test_a_model_is_shown_the_caption_of_the_condition(
    context: ExperimentContext, posters: Path
) -> None:
    """It says yes to something blue: it watches more of the tinted posters."""
    asked: list[str] = []
    modelled = asking_a_model(
        fresh(context, per_page=1), asked, agents=2, watch=lambda text: "blue" in text
    )
    found = thumbnails.configure(min_people=2, folder=posters).run(modelled)
    rows = {r.labels["poster"]: r for r in found.rows if r.source == "model"}
    watched = {name: row.figures["watched"].value for name, row in rows.items()}
    assert watched["blue"] > max(watched["own"], watched["another"])
    assert any("poster: Poster mostly in red" in text for text in asked)
