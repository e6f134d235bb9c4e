"""One small file per figure. Each says which runs it needs and draws them from their traces:

    TITLE                        what is seen, in a line
    GRAPHS                       graphs to draw it on, as overrides; for each, what to take instead where its
                                 raw files are not here ("a,b,c": several graphs in one picture)
    sweeps(graph) -> list[str]   the command lines of the runs, as after `python -m harness -m`
    draw(groups) -> Figure       of the finished runs of one graph, seeds grouped; or {ending: Figure}
    table(groups) -> str         optional: the picture's values as a Markdown table, printed below its path

`python -m harness.figures` starts the runs that are lacking and draws. A new figure is a new file here, or
in a folder of one's own: `python -m harness.figures --from FOLDER`.
"""
