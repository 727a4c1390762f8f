"""Asynq (Go).

layout.py    what it answers; keys.py draws what there is
message.py   a task's message; tasks.py, groups.py, servers.py what else is written
places.py    which structures hold an id; sight.py all of one task, verdicts.py what does not fit about it; job.py tells
problems.py  what does not fit in a queue: by counts, by samples (sample.py), by hashes that nothing names (strays.py)
"""
