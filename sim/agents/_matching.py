"""Personas matched to people for a run, of a release that has none."""

from __future__ import annotations

import polars as pl

from pipelines import matching
from pipelines.config import MatchingSettings, Settings
from pipelines.contracts import MATCHED_DOMAINS
from pipelines.personas import matched_personas
from sim._release import Release, release_view
from sim.environment import persona_users

_NEEDS = ("interactions", "splits", "items", "human_users", "training_traits")


def match_people(
    release: Release, settings: MatchingSettings | None = None
) -> tuple[Release, str | None]:
    """The release with personas matched to people, and a sentence on them.

    A release without any gets them in memory, from the statistical matcher with the numbers of
    ``settings``. One that has some, or whose tables can't be matched, is returned as it is, without
    a sentence. Recommenders are fitted on the release that is returned: its personas are more.
    """
    domain = release.domain
    if domain not in MATCHED_DOMAINS or not all(name in release for name in (*_NEEDS, "personas")):
        return release, None
    if any(persona_users(release)):
        return release, None
    chosen = (settings or MatchingSettings()).model_copy(update={"method": "statistical"})
    history = matching.History.read(
        domain,
        interactions=release["interactions"].lazy(),
        splits=release["splits"].lazy(),
        items=release["items"].polars(),
        human_users=release["human_users"].polars(),
    )
    matcher = matching.open_matcher(Settings(matching=chosen))
    matches = matching.match_users(history, release["training_traits"].polars(), matcher, chosen)
    personas = release["personas"].polars()
    people = matched_personas(matches.personas).select(
        pl.col(name).cast(kind) for name, kind in personas.schema.items()
    )
    view = release_view(
        release,
        {
            "personas": pl.concat([personas, people]),
            "matched_personas": matches.personas,
        },
    )
    note = (
        f"The release has no personas matched to people: {people.height:,} were matched for this "
        f"run by the statistical matcher. {how_to_match(domain)} publish them."
    )
    return view, note


def how_to_match(domain: str) -> str:
    """The two commands that give a release matched personas."""
    return f"`understudy match --domain {domain}` and then `understudy run --job {domain}`"
