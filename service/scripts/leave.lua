-- leave.lua: a worker ends in order; what it still holds goes back.
--
-- Runs     allow-oom: it moves payloads
-- Uses     clock, ready, hands
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  departed  ZSET  worker taken for dead -> until when its hands are looked at, ms
-- KEYS[3]  turns     HASH  worker -> number of its last turn
-- KEYS[4]  ready     LIST  payloads, oldest at the right; or STREAM
-- KEYS[5]  inflight  LIST  payloads in this worker's hands, oldest at the left
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  worker
-- ARGV[3]  type of the ready key: list, stream
-- ARGV[4]  the stream's consumer group, or empty
-- ARGV[5]  its hands are looked at so much longer, ms: a request of its may still be on its way; 0: none is
-- ARGV[6]  how many entries to return at most
-- ARGV[7]  bytes after which no more is returned
--
-- Returns  how many entries went back.
-- Leaves   no trace of the worker, unless something is left or may still come, or the ready key is of another type:
--          then it departed.
local workers, departed, turns, ready, inflight = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, worker, kind, group, linger = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local count, bytes_left = tonumber(ARGV[6]), tonumber(ARGV[7])
local hands, back = hands_of(kind, group, worker, ready, inflight), 0
if usable(ready, kind) then
  local entry = latest(hands)
  while entry and back < count and bytes_left > 0 do
    local _, bytes = print_of(hands, entry)
    give_back(hands, entry)
    back, bytes_left, entry = back + 1, bytes_left - bytes, latest(hands)
  end
  if entry then linger = math.max(linger, 1) end
  if linger == 0 then forget(hands) end
else
  linger = math.max(linger, 1)
end
redis.call('ZREM', workers, worker)
redis.call('HDEL', turns, worker)
if linger > 0 then redis.call('ZADD', departed, now + linger, worker) end
return back
