-- discard.lua: note payloads that no job needs, or a later time for trying to delete them again.
--
-- Runs     allow-oom: it leads to freeing
-- Uses     clock, index, jobs
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  paused   STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  wait, ms: their deletion is tried at now + wait
-- ARGV[4+] references
--
-- Returns  how many are in the trash now; the others are needed by a job.
local queues, delayed, leases, dead, trash, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now, queue, wait, discarded = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), 0
for i = 4, #ARGV do
  if not holds(ARGV[i], delayed, leases, dead) then
    redis.call('ZADD', trash, now + wait, ARGV[i])
    discarded = discarded + 1
  end
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return discarded
