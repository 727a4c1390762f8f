-- release.lua: give leased jobs back as they were: no charge, no record.
--
-- Runs     allow-oom: it moves a reference
-- Uses     clock, reference, index, jobs
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  moved    HASH  uuid -> due, ms
-- KEYS[7]  paused   STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  wait, ms: not claimed again before now + wait; 0 puts them back where they stood
-- ARGV[4+] two a job: reference, token
--
-- Returns  how many were released.
-- Leaves   a job that is no longer the caller's untouched.
local queues, delayed, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local moved, paused = KEYS[6], KEYS[7]
local now, queue, wait = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local released = 0
for i = 4, #ARGV, 2 do
  local member, token = ARGV[i], ARGV[i + 1]
  if owned(leases, member, token) then
    local _, _, ts, uuid = parse(member)
    redis.call('ZADD', delayed, wait > 0 and now + wait or owner_due(moved, uuid, ts), member)
    redis.call('ZREM', leases, member)
    released = released + 1
  end
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return released
