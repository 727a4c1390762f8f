"""Is Redis full of delayed payloads, and what would moving them save? Reads a sample, and changes nothing.

delayed.py       a delayed set, a job of it, and the shape of what reads one library's
layouts/         one file a library: coatcheck, asynq, bullmq, rtq, celery, rq, sidekiq
finding.py       which delayed sets a Redis holds
sampling.py      a random sample of them, within bounds
survey.py        all of that in one look
estimates.py     totals from a sample, with intervals that hold for heavy tails
memory.py        what a job costs Redis; costs.py what that costs in a month
distribution.py  delay x size
grid.py          what each pair of thresholds would make of these jobs
choice.py        the settings to take
report.py        all that is told, and its JSON; figures.py, picture.py for people
"""
