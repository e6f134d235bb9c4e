"""One file per communication strategy. Hydra finds each by the `_target_` of its yaml in `conf/system/`."""
