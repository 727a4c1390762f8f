-- leave.lua: a worker ends in order; what it still holds goes back.
--
-- Runs     allow-oom: it moves payloads
-- Uses     clock
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  departed  ZSET  worker taken for dead -> until when its in-flight list is looked at, ms
-- KEYS[3]  turns     HASH  worker -> number of its last turn
-- KEYS[4]  ready     LIST  payloads, oldest at the right
-- KEYS[5]  inflight  LIST  payloads in this worker's hands, oldest at the left
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  worker
-- ARGV[3]  its in-flight list is looked at so much longer, ms: a request of its may still be on its way; 0: none is
--
-- Returns  how many entries went back.
-- Leaves   no trace of the worker, unless something may still come, or the ready key holds no list: then it departed.
local workers, departed, turns, ready, inflight = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, worker, linger, back = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), 0
local kind = redis.call('TYPE', ready).ok
if kind == 'list' or kind == 'none' then
  while redis.call('LMOVE', inflight, ready, 'RIGHT', 'RIGHT') do back = back + 1 end
else
  linger = math.max(linger, 1)
end
redis.call('ZREM', workers, worker)
redis.call('HDEL', turns, worker)
if linger > 0 then redis.call('ZADD', departed, now + linger, worker) end
return back
