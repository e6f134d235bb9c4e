EXACT = {"llcg": {"local_steps": 1, "server_steps": 0}}
STALE = [("llcg", {"local_steps": 3, "server_steps": 2, "batch": 5}), ("llcg", {"server_steps": 0})]
MODELS = ["gcn", "sage", "gat"]
