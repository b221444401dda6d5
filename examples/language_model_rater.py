"""A language model as the rater: its probabilities of the scale's answers are the ratings.

    understudy models get smollm2-135m
    python examples/language_model_rater.py [MODEL]

A small model fills in the form and is no judge of films: compare with a larger one.
"""

import sys

from pipelines.config import EngineSettings, load_settings
from pipelines.llm.engines import load_engine
from understudy import RecommendationEnv

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
serving = load_settings().serving  # where models are kept, threads, timeouts
engine = load_engine(EngineSettings(kind="transformers", model=model), serving)
env = RecommendationEnv("movies@latest", rater=engine, retriever="embedding")
_, info = env.reset(seed=0)
print(info["description"])
for film in env.catalogue.popularity[:3]:
    step = env.step(int(film))[4]
    print(
        f"{env.catalogue.describe(int(film))['title']}: {step['rating']:g} "
        f"(expected {step['expected']:.1f} on {env.scale.name})"
    )
print(env.rater.note)
