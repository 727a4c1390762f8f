"""redis_task_queue (Dart).

layout.py    what it answers; keys.py draws what there is
envelope.py  an entry; entries.py those of a list or set; job.py all of one task
problems.py  what does not fit in a queue
"""
