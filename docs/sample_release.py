"""Write the small releases that come with the package, from runs of the sample world.

python docs/sample_release.py [--home FOLDER]

Their versions follow from content. Where these are packaged already, nothing is written.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pipelines.packaged import SAMPLE_HOME
from pipelines.store import Store

#: Jobs of `understudy run`, with settings that keep their releases small.
JOBS = {"movies": "scoring.max_pairs=6000", "products": "product_scoring.max_pairs=6000"}


def main() -> None:
    """Make the releases in a home, and replace the packaged ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--home", type=Path, help="home of the runs; default: a new one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = (options.home or Path(scratch)).resolve()
        understudy = Path(sys.executable).with_name("understudy")
        for job, setting in JOBS.items():
            words = [understudy, "run", "--home", home, "--job", job, "--set", setting]
            subprocess.run(words, check=True)
        store, packaged = Store(home), Store(SAMPLE_HOME)
        made = {str(store.release(name)) for name in JOBS}
        if made == {str(release) for release in packaged.releases()}:
            print(f"unchanged: {', '.join(sorted(made))}")
            return
        new = SAMPLE_HOME.with_name("sample_release.new")
        shutil.rmtree(new, ignore_errors=True)
        for name in JOBS:
            _copy(store, name, new)
        shutil.rmtree(SAMPLE_HOME, ignore_errors=True)
        new.rename(SAMPLE_HOME)
    size = sum(path.stat().st_size for path in SAMPLE_HOME.rglob("*"))
    print(f"{', '.join(sorted(made))}: {size / 1e6:.1f} MB in {SAMPLE_HOME}")


def _copy(store: Store, name: str, target: Path) -> None:
    """Copy a release: its tables, lock file, card and pointer, and the record of the format."""
    release = store.release(name)
    folders = [part.path for table in release.tables for part in release.snapshot(table).snapshots]
    card = release.path.with_name(f"{release}.md")
    pointer = store.home / "refs/releases" / f"{name}.json"
    for path in (store.home / "_format.json", release.path, card, pointer):
        copy = target / path.relative_to(store.home)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for folder in folders:
        shutil.copytree(folder, target / folder.relative_to(store.home), dirs_exist_ok=True)


if __name__ == "__main__":
    main()
