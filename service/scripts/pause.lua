-- pause.lua: stop or resume dispatching one queue. What is leased is still delivered.
--
-- Runs     allow-oom: one small key
-- Uses     index, wake
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  paused   STRING
-- ARGV[1]  queue
-- ARGV[2]  wake-up channel
-- ARGV[3]  1: pause, 0: resume
--
-- Returns  1 if that changed anything, else 0.
local queues, delayed, leases, dead, trash, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local queue, channel, pausing = ARGV[1], ARGV[2], ARGV[3] == '1'
local changed
if pausing then
  changed = redis.call('SETNX', paused, '1')
else
  changed = redis.call('DEL', paused)
end
local look = reindex(queues, queue, delayed, leases, dead, trash, paused)
if not pausing then announce(channel, queue, paused, look) end
return changed
