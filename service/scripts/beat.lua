-- beat.lua: a worker's sign of life, and the first one, by which it begins.
--
-- Runs     allow-oom: it writes a name
-- Uses     clock
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  suspects  LIST  payloads with which workers died
-- KEYS[3]  inflight  LIST  payloads in this worker's hands
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  worker
-- ARGV[3]  it is taken for dead when it was not heard of for so long, ms
-- ARGV[4]  1: it begins
--
-- Returns  1 (0: it was taken for dead, and its jobs are others'), now, entries in its hands, suspects.
-- Leaves   a worker that was taken for dead dead: it needs another name.
local workers, suspects, inflight = KEYS[1], KEYS[2], KEYS[3]
local now, worker, patience, begins = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
if begins ~= '1' and not redis.call('ZSCORE', workers, worker) then return { 0, now, 0, 0 } end
redis.call('ZADD', workers, now + patience, worker)
return { 1, now, redis.call('LLEN', inflight), redis.call('LLEN', suspects) }
