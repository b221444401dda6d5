"""A publisher of your own: how its files are read, as a declaration.

python examples/own_source.py FOLDER        # writes a few rows to FOLDER/own and checks them
understudy run --domain recipes --data FOLDER --set data.own.source=examples/own_source.py:Cookbook
"""

import sys
from pathlib import Path

from pipelines.licences import Licence
from pipelines.seams import source
from pipelines.sources.own import OwnSource
from pipelines.sources.testing import check_source


@source("cookbook")
class Cookbook(OwnSource):
    """Names of its files, of columns that have no usual name, and the scale of its ratings."""

    file_names = {"items": "RAW_recipes.csv", "ratings": "RAW_interactions.csv"}
    columns = {"item": "nr", "genres": "sort"}
    scale = "0-5"
    licence = Licence("CC0", "https://example.org", "Public domain.")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "own").mkdir(parents=True, exist_ok=True)
    (folder / "own" / "RAW_recipes.csv").write_text("nr,name,sort\n1,Soup,Thai\n2,Cake,French\n")
    (folder / "own" / "RAW_interactions.csv").write_text("user_id,nr,stars\nu,1,4\nu,2,5\nv,1,2\n")
    print(check_source("cookbook", folder))
