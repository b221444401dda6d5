"""A static site over a release: its personas, visits, dialogues, graph, experiments and training.

:func:`explore` writes a folder that opens from disk, without a server: the page, and the data of
each view in a file beside it.
"""

from sim.explore._site import VIEWS, explore

__all__ = ["VIEWS", "explore"]
