"""Gymnasium environments on a release: a recommender meets simulated users."""

from sim.environment._catalogue import Cast, Catalogue
from sim.environment._env import MoviesEnv
from sim.environment._raters import Rated, StepRater, open_rater

__all__ = ["Cast", "Catalogue", "MoviesEnv", "Rated", "StepRater", "open_rater"]
