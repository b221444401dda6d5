"""Time and figures of matching on a home that holds ml-100k.

    python benchmarks/matching/run.py --home HOME
    python benchmarks/matching/run.py --home HOME --method model --users 4 --set KEY=VALUE ...

Nothing is written but answers of a model. The time is of `match_users` alone: reading the
tables, fitting, tastes, candidates and ratings.
"""

from __future__ import annotations

import argparse
import resource
import time

from pipelines import matching
from pipelines.cli.options import overrides_of
from pipelines.config import load_settings
from pipelines.store import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--domain", default="movies")
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--method", default="statistical")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    overrides = overrides_of(args.home, args.set)
    overrides.setdefault("matching", {}).update(users=args.users, method=args.method)
    settings, store = load_settings(None, overrides), Store(args.home)

    def table(name: str):
        return store.current(f"{args.domain}.{name}")

    wall, cpu = time.perf_counter(), time.process_time()
    history = matching.History.read(
        args.domain,
        interactions=table("interactions").scan(),
        splits=table("splits").scan(),
        items=table("items").read(),
        human_users=table("human_users").read(),
        graph=settings.graph,
    )
    traits = table("training_traits").read()
    matcher = matching.open_matcher(settings)
    found = matching.match_users(history, traits, matcher, settings.matching)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    posterior = matching.posterior_of(matcher, history, settings.matching, found.personas)
    study = matching.attribute_study(history, found.personas, found.metadata, posterior=posterior)
    print(study.markdown())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{found.personas.height} users: {wall:.1f} s, {cpu:.1f} s of CPU, peak {peak:.0f} MiB")
    print({k: found.metadata[k] for k in ("candidate_status", "taste_status")})
    print(found.metadata.get("calls", {}))


if __name__ == "__main__":
    main()
