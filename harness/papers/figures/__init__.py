"""Drawings, a small file each. `conf/experiment/NAME.yaml` says which runs are drawn, at which sizes, and by
which of these (`draw: {capgnn_hits: {}}`), with options where a drawing takes any:

    draw(groups, **options) -> Figure   of the finished runs of one graph, seeds grouped; or {ending: Figure}.
                                        A row of the experiment that is one group goes by the row's name

`halobench figures` starts the runs that are lacking and draws. A drawing of one's own lies beside the
experiment that names it, in a folder that `--from FOLDER` names (docs/howto/figures.md).
"""
