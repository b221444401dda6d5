"""The ``understudy`` command.

``main`` is the console script. ``options`` is what command modules build on, also those of higher
layers (``orchestration.cli``, ``sim.cli``), which register themselves in the entry-point group
``understudy.commands``. All commands are imported only when they are called.
"""
