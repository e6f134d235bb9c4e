"""Drawings, a small file each. `conf/experiment/NAME.yaml` says which runs are drawn, at which sizes, and by
which of these (`draw: {capgnn_hits: {}}`), with options where a drawing takes any:

    draw(groups, **options) -> Figure   of the finished runs of one graph, seeds grouped; or {ending: Figure}.
                                        A row of the experiment that is one group goes by the row's name
    table(groups) -> str                optional: the picture's values as a Markdown table, printed below its
                                        path

`halobench figures` starts the runs that are lacking and draws. A drawing of one's own lies
beside the experiment that names it, in a folder that `--from FOLDER` names. There a file may also say its own
runs (docs/howto/figures.md has one):

    TITLE                        what is seen, in a line
    GRAPHS                       a list of graphs to draw it on, each as overrides ("dblp
                                 dataset.split=low_label"; "a,b,c": several in one picture), or as a list of
                                 them: the first whose raw files are here is taken
    sweeps(graph) -> list[str]   the command lines of the runs, as after `python -m harness -m`
    draw(groups)                 as above
"""
