"""BullMQ (Node).

layout.py    what it answers; keys.py draws what there is
record.py    a job's hash; job.py all of one job
problems.py  what does not fit in a queue: by samples (sample.py), by hashes that nothing names (orphans.py)
"""
