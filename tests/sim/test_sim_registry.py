"""Every registered environment, checked by those who define what an environment is."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from pipelines.errors import ConfigError, ReleaseError
from sim import ENVIRONMENTS
from sim.environment import PersonaText, RecommendationEnv, RecommendationVectorEnv, SlateEnv

SECTIONS = [
    "## Description",
    "## Action Space",
    "## Observation Space",
    "## Rewards",
    "## Starting State",
    "## Episode End",
    "## Arguments",
    "## Version History",
]
#: Environments whose items are rated; tests/sim/dialogue has the other's.
RATED = sorted(n for n in ENVIRONMENTS if "domain" in ENVIRONMENTS[n].kwargs)
OBSERVATIONS = ("recent", "ratings", "compact")


@pytest.fixture(scope="session")
def homes(
    small: ModuleType, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A store of each domain."""
    homes = {"movies": home}
    for domain in ("books", "games"):
        homes[domain] = tmp_path_factory.mktemp(domain) / "home"
        small.build_domain(homes[domain], domain)
    return homes


@pytest.fixture(scope="session")
def raters(homes: dict[str, Path]) -> dict[str, Any]:
    """The statistical rater of each domain, fitted once."""
    return {
        domain: RecommendationEnv(f"{domain}@latest", home=folder).rater
        for domain, folder in homes.items()
    }


def domain_of(name: str) -> str:
    return str(ENVIRONMENTS[name].kwargs["domain"])


def make(name: str, homes: dict[str, Path], rater: Any, **more: Any) -> Any:
    domain = domain_of(name)
    return gymnasium.make(
        name, release=f"{domain}@latest", home=homes[domain], rater=rater,
        on_unrated="truncate", render_mode="ansi", **more,
    )  # fmt: skip


def test_the_registry_holds_exactly_what_we_say() -> None:
    ours = {name for name in gymnasium.registry if name.startswith("Understudy/")}
    assert ours == set(ENVIRONMENTS)


@pytest.mark.parametrize("name", RATED)
@pytest.mark.parametrize("rater", ["statistical", "replay"])
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_every_registered_environment_passes_gymnasiums_checker(
    name: str, rater: str, observation: str, homes: dict[str, Path], raters: dict[str, Any]
) -> None:
    chosen = raters[domain_of(name)] if rater == "statistical" else rater
    env = make(name, homes, chosen, observation=observation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


@pytest.mark.parametrize("name", RATED)
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_every_registered_environment_passes_stable_baselines_checker(
    name: str, observation: str, homes: dict[str, Path], raters: dict[str, Any]
) -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    env = make(name, homes, raters[domain_of(name)], observation=observation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It asks for one-hot codes of whole numbers and for nothing else.
        warnings.filterwarnings("ignore", message=".*(one-hot|normalized|symmetric).*")
        checker.check_env(env.unwrapped, warn=True)


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_every_registered_environment_documents_the_fixed_sections(name: str) -> None:
    module, _, attribute = ENVIRONMENTS[name].entry_point.partition(":")
    kind = getattr(__import__(module, fromlist=[attribute]), attribute)
    doc = kind.__doc__
    sections = [line.strip() for line in doc.splitlines() if line.strip().startswith("## ")]
    assert sections == SECTIONS
    for argument, given in inspect.signature(kind).parameters.items():
        if given.kind is not inspect.Parameter.VAR_KEYWORD and argument != "release":
            assert f"`{argument}`" in doc, argument
    assert "- v0:" in doc


@pytest.mark.parametrize("name", RATED)
def test_every_registered_environment_has_its_own_vector_form(
    name: str, homes: dict[str, Path], raters: dict[str, Any]
) -> None:
    domain = domain_of(name)
    envs = gymnasium.make_vec(
        name, num_envs=3, vectorization_mode="vector_entry_point",
        release=f"{domain}@latest", home=homes[domain], rater=raters[domain],
    )  # fmt: skip
    assert isinstance(envs, RecommendationVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observations, infos = envs.reset(seed=0)
    assert envs.observation_space.contains(observations)
    assert infos["_persona_id"].all()
    envs.action_space.seed(0)
    for _ in range(30):
        observations, rewards, *_ = envs.step(envs.action_space.sample())
        assert envs.observation_space.contains(observations)
        assert envs.single_observation_space.contains({k: v[0] for k, v in observations.items()})
        assert rewards.shape == (3,)
    envs.close()


def test_a_release_of_another_domain_is_refused(homes: dict[str, Path]) -> None:
    with pytest.raises(ReleaseError, match="of movies, not of books"):
        gymnasium.make("Understudy/Books-v0", release="movies@latest", home=homes["movies"])


@pytest.mark.parametrize("name", RATED)
def test_misspelled_argument_names_nearest(name: str, homes: dict[str, Path]) -> None:
    where = {"release": f"{domain_of(name)}@latest", "home": homes[domain_of(name)]}
    with pytest.raises(ConfigError, match=r"'retreiver'.*did you mean retriever\?"):
        gymnasium.make(name, retreiver="none", **where)
    with pytest.raises(ConfigError, match=r"'retreiver'.*did you mean retriever\?"):
        gymnasium.make_vec(
            name, num_envs=2, vectorization_mode="vector_entry_point", retreiver="none", **where
        )


def test_books_are_rated_on_the_scale_they_were_scored_on(
    homes: dict[str, Path], raters: dict[str, Any]
) -> None:
    env = make("Understudy/Books-v0", homes, raters["books"])
    assert env.unwrapped.scale.name == "1-5"
    env.reset(seed=0)
    assert env.step(0)[1] in {1, 2, 3, 4, 5}


def test_the_wrapper_gives_the_personas_text(
    homes: dict[str, Path], raters: dict[str, Any]
) -> None:
    env = PersonaText(make("Understudy/Movies-v0", homes, raters["movies"]))
    observation, info = env.reset(seed=0, options={"persona_id": "persona:default:1"})
    assert observation["text"].startswith("Ben, 31, male, nurse (persona:default:1)")
    assert info["description"] in observation["text"]
    assert env.observation_space.contains(observation)
    after = env.step(3)[0]
    assert after["text"] == observation["text"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The wrapper is checked.
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(env, skip_render_check=True)


def test_a_slate_is_refused_where_it_is_none(
    homes: dict[str, Path], raters: dict[str, Any]
) -> None:
    env = make("Understudy/MoviesSlate-v0", homes, raters["movies"]).unwrapped
    assert isinstance(env, SlateEnv)
    env.reset(seed=0)
    assert np.array_equal(env.action_space.nvec, [24] * 5)
