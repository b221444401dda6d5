"""The ``understudy`` command.

``main`` is the console script. ``options`` is what command modules of higher layers
(``orchestration.cli``, ``sim.cli``) build on; they register themselves in the entry-point group
``understudy.commands`` and are loaded only when they are called.
"""
