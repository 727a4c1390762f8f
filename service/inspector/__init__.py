"""Where did my job go: reads the structures of queue libraries in Redis, and changes nothing.

reading.py    the only way to Redis: reads alone, each bounded, all within a budget
layout.py     the shape of a layout; layouts.py lists them; one folder each: coatcheck/, asynq/, bullmq/, rtq/
answers.py    what they tell; causes.py what a problem means; times.py, payloads.py how values are shown
seeking.py    an id in a list; hashes.py a record; keyspace.py which queues there are
findings.py   what a look finds wrong on its way; weighing.py how much of what may be huge it reads
inspector.py  all layouts at once, for whoever asks
"""
