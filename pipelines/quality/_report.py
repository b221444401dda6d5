"""Page of a release: a persona, people beside personas, raters, checks, lineage and terms."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.domains import DOMAINS
from pipelines.figures import grouped_bars, share
from pipelines.scales import SCALES, scale_named, to_answers

if TYPE_CHECKING:
    from jinja2 import Template

    from pipelines.store import Release

#: Ratings shown of the persona, and items that they are spread over.
_RATINGS, _WATCHED = 5, 30
_SPLITS = {
    "user": "user: the latest tenth of each person's ratings.",
    "cold": "cold: the same, with nothing known of the person.",
    "time": "time: ratings after one point in time for everybody.",
}


def release_report(release: Release, *, persona: str | None = None) -> dict[str, Any]:
    """Everything that a page about a release shows, as values of its template.

    ``persona`` is the id of the one to show (ReleaseError without scores); default the first with
    scores.
    """
    domain = next((lock.dataset.partition(".")[0] for lock in release.tables.values()), "")
    item = DOMAINS[domain].item if domain in DOMAINS else "item"
    shown = _persona(release, persona, item)
    statement, figures, population = _people(release)
    raters = _raters(release)
    generated = release.world.startswith("sample")
    notes = []
    if generated:
        notes.append(
            "Items, people and ratings of this world are generated: figures about them say whether "
            "the pipeline works, not how people rate."
        )
    if shown and shown["statistical"]:
        notes.append(
            "No language model was used: descriptions and ratings are statistical, a baseline and "
            "a stand-in."
        )
    sections = [
        ("persona", "Persona", shown),
        ("people", "People", figures),
        ("population", "Population", population),
        ("raters", "Raters", raters),
        ("checks", "Checks", True),
        ("lineage", "Lineage", True),
        ("terms", "Terms", True),
    ]
    raw = {n: v for n, v in release.lineage.items() if n.startswith(("raw.", "file:"))}
    return {
        "ref": str(release),
        "title": f"{release.name.capitalize()}: simulated users of {item}s",
        "world": release.world,
        "created_at": release.created_at[:16].replace("T", " ") + " UTC",
        "contents": [
            f"{release.tables[table].rows:,} {word}"
            for table, word in (
                ("items", f"{item}s"),
                ("human_users", "people"),
                ("interactions", "human ratings"),
                ("personas", "personas"),
                ("preference_scores", "scores"),
            )
            if table in release.tables
        ],
        "sections": [(key, name) for key, name, content in sections if content],
        "notes": notes,
        "item": item,
        "persona": shown,
        "statement": statement,
        "figures": figures,
        "population": population,
        "raters": raters,
        "splits": " ".join(_SPLITS[s] for s in raters if s in _SPLITS),
        "checks": _checks(release),
        "tables": _tables(release),
        "origins": sorted(raw.items()),
        "generated": generated,
        "terms": _terms(release),
    }


def report_page(report: dict[str, Any]) -> str:
    """The page as one HTML file that loads nothing else."""
    return _template().render(report)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(Path(__file__).with_name("report.html.jinja").read_text("utf-8"))


def _persona(release: Release, requested: str | None, item: str) -> dict[str, Any] | None:
    from pipelines.errors import ReleaseError

    if not {"personas", "preference_scores", "items"} <= set(release.tables):
        return None
    scores = release.snapshot("preference_scores").scan().filter(pl.col("status") == "ok")
    if requested is None:
        first = scores.select(pl.col("persona_id").min()).collect().item()
    else:
        first = scores.filter(pl.col("persona_id") == requested).head(1).collect()
        first = requested if first.height else None
    if first is None:
        if requested is not None:
            raise ReleaseError(f"no scores of {requested}", where=str(release))
        return None
    mine = scores.filter(pl.col("persona_id") == first)
    chosen, order = "Five ratings, from best to worst.", pl.lit(0.0)
    if "score_plan" in release.tables:
        plan = release.snapshot("score_plan").scan().select("persona_id", "item_id", "exposure")
        mine = mine.join(plan, on=["persona_id", "item_id"], how="left")
        order = pl.col("exposure").fill_null(0)
        chosen = (
            f"Five of the {_WATCHED} {item}s that a person of this taste is most likely to know, "
            "from best to worst."
        )
    items = release.snapshot("items").scan()
    columns = [c for c in ("title", "year", "genres") if c in items.collect_schema()]
    watched = (
        mine.sort(order, "item_id", descending=[True, False])
        .head(_WATCHED)
        .join(items.select("item_id", *columns), on="item_id", maintain_order="left")
        .sort("expected", "item_id", descending=[True, False])
        .collect()
    )
    spread = [round(i * (watched.height - 1) / (_RATINGS - 1)) for i in range(_RATINGS)]
    rows = watched[sorted(set(spread))].to_dicts()
    people = release.snapshot("personas").scan().filter(pl.col("persona_id") == first)
    person = people.collect().to_dicts()[0]
    facts = [str(person[c]) for c in ("age", "gender", "job", "hobby") if person[c] is not None]
    likes, dislikes = set(person["likes"]), set(person["dislikes"])
    for row in rows:
        peak = max(row["probabilities"])
        row["bars"] = [round(32 * p / peak, 1) for p in row["probabilities"]]
        genres = row.get("genres") or []
        liked, disliked = (", ".join(g for g in genres if g in s) for s in (likes, dislikes))
        reasons = [f"likes {liked}"] * bool(liked) + [f"dislikes {disliked}"] * bool(disliked)
        row["why"] = row["explanation"] or "; ".join(reasons) or ", ".join(genres)
        row["year"] = row.get("year") or ""
    return {
        **person,
        "facts": facts,
        "ratings": rows,
        "rater": rows[0]["rater"],
        "scale": rows[0]["scale"],
        "chosen": chosen,
        "statistical": person["writer"] == "statistical" and rows[0]["rater"] == "statistical",
    }


def _people(release: Release) -> tuple[str, dict[str, str], list[tuple[str, ...]]]:
    """Comparison of personas with people: a statement, pictures as data URLs, rows of figures."""
    from pipelines.raters import population_pictures, population_rows

    pictures: dict[str, bytes] = {}
    statement, population = "Ratings of personas and of people.", []
    if {"preference_scores", "interactions"} <= set(release.tables):
        pictures["ratings"] = _histogram(release)
    if "population" in release.tables:
        snapshot = release.snapshot("population")
        rows, facts = snapshot.read(), snapshot.manifest.stats["population"]
        statement, population = facts["statement"], population_rows(rows)
        pictures |= population_pictures(rows, facts)
    encoded = {
        name: f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        for name, picture in pictures.items()
    }
    return statement, encoded, list(population)


def _histogram(release: Release) -> bytes:
    """Ratings that personas draw and that people gave, on the personas' scale."""
    drawn = (
        release.snapshot("preference_scores")
        .scan()
        .filter(pl.col("status") == "ok")
        .group_by("scale", "sample")
        .agg(n=pl.len())
        .collect(engine="streaming")
    )
    given = (
        release.snapshot("interactions")
        .scan()
        .group_by("scale", "rating")
        .agg(n=pl.len())
        .collect(engine="streaming")
    )
    scale = scale_named(drawn["scale"][0])
    answers = [float(a) for a in scale.answers]
    people = given.with_columns(
        answer=pl.Series(
            [
                float(to_answers([rating], SCALES[source], scale)[0])
                for source, rating in given.select("scale", "rating").iter_rows()
            ],
            dtype=pl.Float64,
        )
    )
    sides = []
    for name, frame, column in (("personas", drawn, "sample"), ("people", people, "answer")):
        counts = dict(
            frame.group_by(pl.col(column).cast(pl.Float64)).agg(pl.col("n").sum()).iter_rows()
        )
        sides.append((name, share(pl.Series([counts.get(a, 0) for a in answers]))))
    return grouped_bars("Ratings", f"rating on {scale.name}", "share", scale.texts, sides)


def _raters(release: Release) -> dict[str, list[tuple[str, ...]]]:
    """Rows by split: predictor, kind, whether it asks a model, and figures with intervals."""
    if "rater_report" not in release.tables:
        return {}
    report = release.snapshot("rater_report").read()
    by_split: dict[str, list[tuple[str, ...]]] = {}
    for split in (s for s in _SPLITS if s in set(report["split"])):
        rows = report.filter(pl.col("split") == split)
        ranked = rows.filter(pl.col("metric") == "rmse").sort("value", "predictor")
        for row in ranked.iter_rows(named=True):
            name = row["predictor"]
            order = rows.filter(pl.col("metric") == "pairwise", pl.col("predictor") == name)
            cells = [row, *order.to_dicts()]
            shown = [f"{c['value']:.3f} [{c['low']:.3f}, {c['high']:.3f}]" for c in cells]
            model = "none (statistical)" if row["statistical"] else "yes"
            by_split.setdefault(split, []).append(
                (name, row["kind"], model, shown[0], shown[1] if len(shown) > 1 else "")
            )
    return by_split


def _checks(release: Release) -> dict[str, Any]:
    from pipelines.store import count_outcomes

    used = {lock.dataset for lock in release.tables.values()}
    records = [(d, c) for d, checks in release.checks.items() if d in used for c in checks.values()]
    rows = [
        (d, c.name, c.outcome.replace("_", " "), str(c.details.get("skipped", "")))
        for d, c in records
        if c.passed is not True
    ]
    return {"counts": count_outcomes(c for _, c in records), "rows": rows}


def _tables(release: Release) -> list[tuple[str, ...]]:
    from pipelines.store import split_cohort

    rows: list[tuple[str, ...]] = []
    for name, lock in release.tables.items():
        inputs = {split_cohort(dataset)[0] for dataset in release.snapshot(name).manifest.inputs}
        rows.append((name, lock.version, ", ".join(sorted(inputs)) or "no table", f"{lock.rows:,}"))
    return rows


def _terms(release: Release) -> list[tuple[str, str, str]]:
    from pipelines.exports import licences
    from pipelines.personas import LICENCES

    named = licences(release) | (LICENCES if "personas" in release.tables else {})
    return [(name, licence.line, licence.citation) for name, licence in sorted(named.items())]
