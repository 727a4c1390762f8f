"""The bench: Coatcheck's speed beside the least that Redis and S3 must do for it, measured in the same run.

__main__.py   the command
stage.py      Redis, S3 and the service as it runs in production, all on loopback
bare.py       runs the programs in bounds/, which we are measured against
workers.py    runs workers: ours, and those of other libraries by the programs in peers/
figures.py    a figure, its bound and its target; the table
measures/     one file a kind of work
"""
