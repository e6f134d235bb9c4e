"""Names in a trace that a replay (`harness.model.replay`) looks for; reports read them too, without torch."""

# Operations that hand an update to the parameter server, which applies updates as they come or in the order
# of ranks; and the segment in which a worker is held up on purpose.
UPDATE, IN_TURN, STRAGGLE = "update", "update in turn", "straggle"
# A wait for a batch that threads beside the training make. Three metrics: the CPU seconds of
# these threads for the batches of the epoch, the number of threads, and how many batches they begin ahead of
# the one that is asked for.
BATCH = "batch"
SAMPLER, SAMPLER_THREADS, SAMPLER_AHEAD = "sampler_s", "sampler_threads", "sampler_ahead"
