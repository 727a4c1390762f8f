-- revive.lua: give dead jobs another life: due now, with a clean record.
--
-- Runs     allow-oom: it moves a reference
-- Uses     clock, reference, index, jobs, wake
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  trouble  HASH  uuid -> record, JSON
-- KEYS[7]  moved    HASH  uuid -> due, ms
-- KEYS[8]  paused   STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  wake-up channel
-- ARGV[4+] members of the dead set
--
-- Returns  how many were revived; the others are not dead, or no references.
-- Leaves   lateness of these jobs counting from now.
local queues, delayed, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trouble, moved, paused = KEYS[6], KEYS[7], KEYS[8]
local now, queue, channel, revived = clock(ARGV[1]), ARGV[2], ARGV[3], 0
for i = 4, #ARGV do
  local member = ARGV[i]
  local _, of, _, uuid = parse(member)
  if of == queue and holds(member, dead) then
    redis.call('HDEL', trouble, uuid)
    redis.call('HSET', moved, uuid, now)
    redis.call('ZADD', delayed, now, member)
    redis.call('ZREM', dead, member)
    revived = revived + 1
  end
end
if revived > 0 then announce(channel, queue, paused, now) end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return revived
