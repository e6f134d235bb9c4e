"""Every system on one graph: accuracy over epochs, time and bytes, and where an epoch's time goes.

`vanilla` stands there in both forms, since only one side caching the static features is no comparison, and so
does the control, whose remote rows are zero: a system no better than it uses no remote information.
"""

from harness.report import plot, style
from harness.report.table import only_section


def draw(groups):
    return plot.pictures(only_section(groups), style.strokes_of(group.label for group in groups))
