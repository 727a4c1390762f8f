-- begin.lua: a worker's first sign of life on a queue, under a name that nobody had before.
--
-- Runs     allow-oom: it writes a name
-- Uses     clock
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  worker
-- ARGV[3]  it is taken for dead when it was not heard of for so long, ms
--
-- Returns  now.
-- Leaves   the worker with nothing in its hands.
local workers = KEYS[1]
local now, worker, patience = clock(ARGV[1]), ARGV[2], ARGV[3]
redis.call('ZADD', workers, now + patience, worker)
return now
