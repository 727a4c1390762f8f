-- hand_back.lua: a worker gives back what it has not begun, to be the next that is taken.
--
-- Runs     allow-oom: it moves payloads
-- Uses     nothing
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  ready     LIST  payloads, oldest at the right
-- KEYS[3]  inflight  LIST  payloads in this worker's hands
-- ARGV[1]  worker
-- ARGV[2+] entries, as they were taken, oldest first
--
-- Returns  how many went back; none if the ready key holds no list, or if the worker was taken for dead.
-- Leaves   those that did not in the in-flight list.
local workers, ready, inflight = KEYS[1], KEYS[2], KEYS[3]
local worker, back = ARGV[1], 0
local kind = redis.call('TYPE', ready).ok
if kind ~= 'list' and kind ~= 'none' then return 0 end
if not redis.call('ZSCORE', workers, worker) then return 0 end
for i = #ARGV, 2, -1 do
  if redis.call('LREM', inflight, -1, ARGV[i]) == 1 then
    redis.call('RPUSH', ready, ARGV[i])
    back = back + 1
  end
end
return back
