-- reclaim.lua: take back leases whose deadline passed: their dispatcher died, hung, or lost Redis.
--
-- Runs     allow-oom: it moves a reference
-- Uses     clock, reference, index, trouble, jobs
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
-- ARGV[3]  limit: leases taken back at most
-- ARGV[4]  max_expiries: a job that lost so many dispatchers is dead as `lease_expired`
--
-- Returns  two a job: reference, state (`delayed`, `dead`).
-- Leaves   an expiry in the job's record, not an attempt: a process died, which is not the job's failure until it
--          happens again and again.
local queues, delayed, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trouble, moved, paused = KEYS[6], KEYS[7], KEYS[8]
local now, queue, limit, max_expiries = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local outcomes = {}
for _, member in ipairs(redis.call('ZRANGE', leases, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)) do
  local _, _, ts, uuid = parse(member)
  local id = uuid or redis.sha1hex(member)
  local record = trouble_of(trouble, id)
  record.expiries, record.at = record.expiries + 1, now
  local state = 'dead'
  if not uuid then
    bury(dead, trouble, member, id, now, 'not_a_reference', record)
  elseif record.expiries >= max_expiries then
    bury(dead, trouble, member, id, now, 'lease_expired', record)
  else
    state = 'delayed'
    redis.call('HSET', trouble, id, cjson.encode(record))
    redis.call('ZADD', delayed, owner_due(moved, uuid, ts), member)
  end
  redis.call('ZREM', leases, member)
  outcomes[#outcomes + 1] = member
  outcomes[#outcomes + 1] = state
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return outcomes
