EXACT = {"adaqp": None}
STALE = [
    ("adaqp", {"bits": 4}),
    ("adaqp", {"bits": 4, "assignment": "adaptive", "period": 3}),
    ("adaqp", {"features": "refetch"}),
]
