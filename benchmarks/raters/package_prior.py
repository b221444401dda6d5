"""Package the prior of tastes: aggregates of ml-latest-small that small worlds are pooled with.

    python benchmarks/raters/package_prior.py --home HOME

The home is one that `understudy run` made from ml-latest-small. Only a covariance over genres,
year, popularity and quality, and a few moments leave it; no person's values do.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from pipelines.raters import fit_statistical, scale_named
from pipelines.store import Store

OUT = Path("pipelines/raters/statistical/data/taste_prior.json")
TERMS = (
    "Aggregates of MovieLens ml-latest-small (Harper and Konstan, 2015, doi:10.1145/2827872), "
    "GroupLens terms of use."
)


def main() -> None:
    """Fit on the home's tables and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    store = Store(parser.parse_args().home)
    names = ("items", "item_stats", "interactions", "splits", "item_embeddings")
    tables = {name: store.current(f"movies.{name}").read() for name in names}
    rater = fit_statistical(scale=scale_named("1-10"), **tables)
    genres = len(rater.catalogue.genres)
    covariance = rater.drawn.covariance
    kept = [*range(genres + 1), *range(len(covariance) - 3, len(covariance))]
    text = np.diag(covariance)[genres + 1 : -3]
    prior = {
        "source": "ml-latest-small",
        "terms": TERMS,
        "people": rater.fitted_on["users"],
        "ratings": rater.fitted_on["ratings"],
        "genres": list(rater.catalogue.genres),
        "covariance": covariance[np.ix_(kept, kept)].round(6).tolist(),
        "component": round(float(text.mean()), 6),
        "noise": round(rater.tastes.noise, 6),
        "statements": [
            round(v, 6)
            for v in (rater.statements.liked, rater.statements.disliked, rater.statements.noise)
        ],
        "width_spread": round(rater.width_spread, 6),
        "extremes_spread": round(rater.extremes_spread, 6),
    }
    OUT.write_text(json.dumps(prior, indent=1) + "\n")


if __name__ == "__main__":
    main()
