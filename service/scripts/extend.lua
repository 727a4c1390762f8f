-- extend.lua: give the caller's own leases a later deadline, for a fetch that outlasts half its lease.
--
-- Runs     allow-oom: it changes scores only
-- Uses     index, jobs
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  paused   STRING
-- ARGV[1]  queue
-- ARGV[2]  lease, ms
-- ARGV[3+] two a job: reference, token
--
-- Returns  for each job its token from now on, or empty: the lease is no longer the caller's.
-- Leaves   deadline = token + lease - 1: the caller can name it without an answer, so that a repeat changes nothing;
--          and no lease that somebody takes after this token ran out can have that deadline.
local queues, delayed, leases, dead, trash, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local queue, lease, tokens = ARGV[1], tonumber(ARGV[2]), {}
for i = 3, #ARGV, 2 do
  local member, token = ARGV[i], tonumber(ARGV[i + 1])
  local extended = token + lease - 1
  if owned(leases, member, token) then
    redis.call('ZADD', leases, extended, member)
    tokens[#tokens + 1] = string.format('%.17g', extended)
  else
    tokens[#tokens + 1] = owned(leases, member, extended) and string.format('%.17g', extended) or ''
  end
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return tokens
