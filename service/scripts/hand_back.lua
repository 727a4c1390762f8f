-- hand_back.lua: a worker gives back what it has not begun, to be the next that is taken.
--
-- Runs     allow-oom: it moves payloads
-- Uses     ready, hands
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  ready     LIST  payloads, oldest at the right; or STREAM
-- KEYS[3]  inflight  LIST  payloads in this worker's hands
-- ARGV[1]  worker
-- ARGV[2]  type of the ready key: list, stream
-- ARGV[3]  the stream's consumer group, or empty
-- ARGV[4+] entries, as they were taken, oldest first
--
-- Returns  how many went back; none if the ready key is of another type, or if the worker was taken for dead.
-- Leaves   those that did not in its hands.
local workers, ready, inflight = KEYS[1], KEYS[2], KEYS[3]
local worker, kind, group, back = ARGV[1], ARGV[2], ARGV[3], 0
local hands = hands_of(kind, group, worker, ready, inflight)
if not usable(ready, kind) or not redis.call('ZSCORE', workers, worker) then return 0 end
for i = #ARGV, 4, -1 do
  if give_back(hands, ARGV[i]) then back = back + 1 end
end
return back
