"""What each system's inherited tests run over: one module a system, named as its yaml's first part in
`conf/system/`.

EXACT     name of the yaml (`sancus`, `sancus/official`) -> knobs that make it exact full-graph training, a
          list of settings: its own (`System.exact`) and those that no test of its oracle draws; where only a
          single worker is exact, its knobs (None: the yaml's)
STALE     (name, knobs) with the knobs on: same seed same bits, stop and resume, evaluation, segments
MODELS    models the system supports (default gcn and sage); METHODS partitions it trains on (default metis,
          random, block)
"""

REFETCH = {"features": "refetch"}  # for what concerns layer 0
