-- bury.lua: give up on leased jobs; their payloads stay, for whoever revives or purges them.
--
-- Runs     allow-oom: it moves a reference
-- Uses     clock, reference, index, trouble, jobs
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  trouble  HASH  uuid -> record, JSON
-- KEYS[7]  paused   STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3+] four a job: reference, token, reason, kind of error
--
-- Returns  for each job 1 buried, 0 the lease is not the caller's.
-- Leaves   a job that is no longer the caller's untouched.
local queues, delayed, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trouble, paused = KEYS[6], KEYS[7]
local now, queue, outcomes = clock(ARGV[1]), ARGV[2], {}
for i = 3, #ARGV, 4 do
  local member, token, reason, kind = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local mine = owned(leases, member, token)
  if mine then
    local id = identity(member)
    local record = trouble_of(trouble, id)
    record.error = kind
    bury(dead, trouble, member, id, now, reason, record)
    redis.call('ZREM', leases, member)
  end
  outcomes[#outcomes + 1] = mine and 1 or 0
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return outcomes
