"""Releases in the formats of other tools, each a folder that is there whole or not at all.

>>> from pipelines.seams import EXPORTS
>>> EXPORTS.names()[:3]
['croissant', 'huggingface', 'lenskit']
"""

from pipelines.exports._export import (
    Export,
    ExportOptions,
    export_release,
    left_out,
    licences,
)
from pipelines.exports._tables import push_to_hub

__all__ = [
    "Export",
    "ExportOptions",
    "export_release",
    "left_out",
    "licences",
    "push_to_hub",
]
