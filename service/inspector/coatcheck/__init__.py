"""Coatcheck itself; service/keys.py draws what there is.

layout.py    what it answers
members.py   members of sorted sets; sight.py all of one job at one moment; job.py tells it
ready.py     ready queues, lists and streams; workers.py: who works on them, and what they have in hand
problems.py  what does not fit in a queue; orphans.py: what it keeps for jobs that it does not have
"""
