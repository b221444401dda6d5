"""Category trees: both formats, every fault a line can have, and faults of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.given_worlds import GivenWorld

from pipelines.errors import SourceError

LOOSE = {"ingest": {"max_rejected_share": 1.0}}


@pytest.fixture
def world(tmp_path: Path) -> GivenWorld:
    return GivenWorld(tmp_path, "taxonomy")


def paths(world: GivenWorld, **sections: object) -> list[str]:
    return list(world.ingest(**sections)["raw.taxonomy_categories"].read()["path"])


# -- formats -------------------------------------------------------------------------------


def test_lines_are_read_as_published_by_path(world: GivenWorld) -> None:
    world.write("taxonomy/tree.txt", "# Version 7\nToys>Puzzles\r\nToys\n\n  Food  >  PurÃ©es \n\n")
    found = world.ingest()["raw.taxonomy_categories"]
    assert found.read().rows() == [
        ("Food > PurÃ©es", "PurÃ©es", 2),
        ("Toys", "Toys", 1),
        ("Toys > Puzzles", "Puzzles", 2),
    ]
    stats = found.manifest.stats
    assert (stats["rows_read"], stats["rejected"]) == (5, 0)
    assert stats["filtered"] == {"blank_line": 1, "comment": 1}
    assert stats["categories_by_level"] == {"1": 1, "2": 2}


def test_a_byte_order_mark_a_number_before_the_path_and_no_last_line_end(world: GivenWorld) -> None:
    world.write("taxonomy/tree.txt", "\ufeff1 - Toys\n55 - Toys > 3 - D Puzzles")
    assert paths(world) == ["Toys", "Toys > 3 - D Puzzles"]


@pytest.mark.parametrize(
    "header",
    [
        "level1,level2,level3",
        "Category 1,Category 2,Category 3",
        '"L1","L2","L3"',
        "Browse Level_1,Sub-category 2,tier-3",
    ],
)
def test_a_csv_has_one_column_per_level(world: GivenWorld, header: str) -> None:
    rows = 'Toys,,\nToys,"Puzzles, Games",\nToys,"Puzzles, Games","""3D"" ones"\n'
    world.write("taxonomy/tree.csv", f"{header}\n{rows}")
    assert paths(world) == [
        "Toys",
        "Toys > Puzzles, Games",
        'Toys > Puzzles, Games > "3D" ones',
    ]


def test_packed_files_are_told_by_their_first_bytes(world: GivenWorld) -> None:
    world.write("taxonomy/tree.csv.gz", "level1\nToys\n", packed=True)
    assert paths(world) == ["Toys"]


def test_a_file_outside_the_folder_is_named_in_the_settings(
    world: GivenWorld, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("A > B\n")
    found = world.ingest(data={"taxonomy": {"file": str(tmp_path / "mine.txt")}})
    assert found["raw.taxonomy_categories"].manifest.stats["file"] == "mine.txt"


# -- rows that can't be taken --------------------------------------------------------------


def test_each_faulty_line_is_rejected_with_its_reason(world: GivenWorld) -> None:
    lines = [
        b"Toys > Puzzles",
        b"Toys > Caf\xe9s",
        b"Toys > > Puzzles",
        b"> Toys",
        b"Toys\t> Games",
        b"Toys > " + b"x" * 201,
        b" > ".join([b"a"] * 33),
        b"Toys  >  Puzzles",
    ]
    world.write("taxonomy/tree.txt", b"\n".join(lines))
    found = world.ingest(**LOOSE)
    assert found["raw.taxonomy_categories"].rows == 1
    assert world.rejected(found) == [
        ("taxonomy/tree.txt", 2, "invalid_utf8"),
        ("taxonomy/tree.txt", 3, "empty_level"),
        ("taxonomy/tree.txt", 4, "empty_level"),
        ("taxonomy/tree.txt", 5, "control_character"),
        ("taxonomy/tree.txt", 6, "too_long"),
        ("taxonomy/tree.txt", 7, "too_many_levels"),
        ("taxonomy/tree.txt", 8, "duplicate_key"),
    ]


def test_each_faulty_row_of_a_csv_is_rejected_with_its_reason(world: GivenWorld) -> None:
    rows = ["Toys,Puzzles", "Toys", "Toys,Puzzles,Wood", 'Toys,"Puz', 'Toys,"a"b', ",Puzzles",
            ",", "Toys,a > b", "Toys,Puzzles"]  # fmt: skip
    world.write("taxonomy/tree.csv", "\n".join(["level1,level2", *rows]))
    found = world.ingest(**LOOSE)
    assert found["raw.taxonomy_categories"].read()["path"].to_list() == ["Toys > Puzzles"]
    assert [(line, why) for _, line, why in world.rejected(found)] == [
        (3, "wrong_columns"),
        (4, "wrong_columns"),
        (5, "bad_quotes"),
        (6, "bad_quotes"),
        (7, "empty_level"),
        (8, "empty_level"),
        (9, "separator_in_name"),
        (10, "duplicate_key"),
    ]


def test_too_many_faulty_lines_fail_the_run(world: GivenWorld) -> None:
    world.write("taxonomy/tree.txt", "\n".join([*(f"A > {n}" for n in range(90)), "A > > B"]))
    with pytest.raises(SourceError, match=r"1 of 91 rows rejected, over the limit of 1.00%"):
        world.ingest()
    assert not world.store.has("raw.taxonomy_categories")


# -- files that can't be taken -------------------------------------------------------------


@pytest.mark.parametrize("header", ["Toys,Puzzles", "level2,level3", "level1,name", ""])
def test_a_csv_without_numbered_levels_names_what_was_expected(
    world: GivenWorld, header: str
) -> None:
    world.write("taxonomy/tree.csv", f"{header}\nToys,Puzzles\n")
    with pytest.raises(SourceError, match=r"taxonomy/tree.csv:1 \(expected .*level1,level2"):
        world.ingest()


def test_a_truncated_gzip_file_is_an_error_of_the_file(world: GivenWorld) -> None:
    path = world.write("taxonomy/tree.txt.gz", "Toys > Puzzles\n" * 500, packed=True)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(SourceError, match=r"taxonomy/tree\.txt\.gz"):
        world.ingest()


@pytest.mark.parametrize("content", ["", "# only a comment\n"])
def test_a_file_without_paths_is_an_error(world: GivenWorld, content: str) -> None:
    world.write("taxonomy/tree.txt", content)
    with pytest.raises(SourceError, match=r"empty|no usable rows"):
        world.ingest()


def test_no_tree_is_an_empty_table(world: GivenWorld) -> None:
    assert world.ingest()["raw.taxonomy_categories"].rows == 0


def test_two_trees_are_an_error_that_names_the_setting(world: GivenWorld) -> None:
    world.write("taxonomy/a.txt", "A\n")
    world.write("taxonomy/b.csv", "level1\nA\n")
    with pytest.raises(SourceError, match=r"2 category trees.*data.taxonomy.file"):
        world.ingest()


@pytest.mark.shared_data
def test_the_real_tree_is_read_whole(world: GivenWorld, shared_data: Path) -> None:
    file = str(shared_data / "taxonomy" / "product_taxonomy_paths.txt")
    found = world.ingest(data={"taxonomy": {"file": file}})
    assert found["raw.taxonomy_categories"].rows == 5595
    assert found["raw.taxonomy_rejected"].rows == 0
