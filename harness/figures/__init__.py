"""One small file per figure. Each says which runs it needs and draws them from their traces:

    TITLE                        what is seen, in a line
    GRAPHS                       a list of graphs to draw it on, each as overrides ("dblp
                                 dataset.split=low_label"; "a,b,c": several in one picture), or as a list of
                                 them: the first whose raw files are here is taken
    sweeps(graph) -> list[str]   the command lines of the runs, as after `python -m harness -m`
    draw(groups) -> Figure       of the finished runs of one graph, seeds grouped; or {ending: Figure}
    table(groups) -> str         optional: the picture's values as a Markdown table, printed below its path

`python -m harness.figures` starts the runs that are lacking and draws. A new figure is a new file here, or
in a folder of one's own: `python -m harness.figures --from FOLDER` (docs/howto/figures.md has one).
"""
