-- retry.lua: put jobs that failed back into the delayed set, charged with an attempt or not; after too many attempts
-- they are dead.
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
-- ARGV[3]  max_attempts
-- ARGV[4]  shortest backoff, ms
-- ARGV[5]  longest backoff, ms
-- ARGV[6+] six a job: reference, token, wait (ms; not charged) or empty (charged), jitter in [0, 1), kind of error,
--          reason if it dies
--
-- Returns  for each job {state (`delayed`, `dead`, or `gone`: the lease is not the caller's), attempts, next attempt
--          (ms)}.
-- Leaves   a job that is no longer the caller's untouched. A charged one backs off: doubling from the shortest with
--          each attempt up to the longest, less a jitter of up to half of it. One that is not charged waits as told,
--          and up to half as long again: what failed together does not come back together.
local queues, delayed, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trouble, paused = KEYS[6], KEYS[7]
local now, queue, max_attempts = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local shortest, longest = tonumber(ARGV[4]), tonumber(ARGV[5])

local function backoff(attempts, jitter)
  local whole = math.min(longest, shortest * 2 ^ math.min(attempts - 1, 40))
  return math.floor(whole * (1 - jitter / 2))
end

local function retry(member, token, wait, jitter, kind, reason)
  if not owned(leases, member, token) then return { 'gone', 0, 0 } end
  local id = identity(member)
  local record = trouble_of(trouble, id)
  record.error, record.at = kind, now
  if not wait then record.attempts = record.attempts + 1 end
  if not wait and record.attempts >= max_attempts then
    bury(dead, trouble, member, id, now, reason, record)
    redis.call('ZREM', leases, member)
    return { 'dead', record.attempts, 0 }
  end
  local pause = wait and math.floor(math.max(wait, shortest) * (1 + jitter / 2)) or backoff(record.attempts, jitter)
  local again = now + pause
  redis.call('HSET', trouble, id, cjson.encode(record))
  redis.call('ZADD', delayed, again, member)
  redis.call('ZREM', leases, member)
  return { 'delayed', record.attempts, string.format('%.0f', again) }
end

local outcomes = {}
for i = 6, #ARGV, 6 do
  local member, token, wait, jitter = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  outcomes[#outcomes + 1] = retry(member, token, wait, jitter, ARGV[i + 4], ARGV[i + 5])
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return outcomes
