-- begin.lua: a worker's first sign of life on a queue, under a name that nobody had before.
--
-- Runs     allow-oom: it writes a name
-- Uses     clock, ready, hands
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  departed  ZSET  worker taken for dead -> until when its hands are looked at, ms
-- KEYS[3]  ready     LIST  payloads, oldest at the right; or STREAM
-- KEYS[4]  inflight  LIST  payloads in this worker's hands
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  worker
-- ARGV[3]  type of the ready key: list, stream
-- ARGV[4]  the stream's consumer group, or empty
-- ARGV[5]  it is taken for dead when it was not heard of for so long, ms
-- ARGV[6]  its name before, or empty
-- ARGV[7]  the hands of that one are looked at so much longer, ms
--
-- Returns  now.
-- Leaves   the worker with nothing in its hands, and a stream with its group, unless that key is of another type. What
--          it took under its name before is looked for also if Redis has lost that name: a pop asks nobody for whom.
local workers, departed, ready, inflight = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, worker, kind, group, patience = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local before, linger = ARGV[6], ARGV[7]
redis.call('ZADD', workers, now + patience, worker)
if before ~= '' then
  redis.call('ZREM', workers, before)
  redis.call('ZADD', departed, 'NX', now + linger, before)
end
if usable(ready, kind) then join(hands_of(kind, group, worker, ready, inflight)) end
return now
