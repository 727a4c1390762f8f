-- retry.lua: put jobs that failed back into the delayed set, charged with an attempt or not; after too many attempts they are dead.
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
-- ARGV[6+] six a job: reference, token, 1 charged or 0, jitter in [0, 1), kind of error, reason if it dies of this
--
-- Returns  for each job {state (`delayed`, `dead`, or `gone`: the lease is not the caller's), attempts, next attempt (ms)}.
-- Leaves   a job that is no longer the caller's untouched. Backoff doubles from the shortest with each attempt up to the longest; a
--          jitter of up to half of it is taken off, so that what failed together does not come back together.
local queues, delayed, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trouble, paused = KEYS[6], KEYS[7]
local now, queue, max_attempts = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local shortest, longest = tonumber(ARGV[4]), tonumber(ARGV[5])

local function backoff(failures, jitter)
  local whole = math.min(longest, shortest * 2 ^ math.min(failures - 1, 40))
  return math.floor(whole * (1 - jitter / 2))
end

local function retry(member, token, charged, jitter, kind, reason)
  if not owned(leases, member, token) then return { 'gone', 0, 0 } end
  local id = identity(member)
  local record = trouble_of(trouble, id)
  record.error, record.at = kind, now
  redis.call('ZREM', leases, member)
  if charged then record.attempts = record.attempts + 1 else record.deferrals = (record.deferrals or 0) + 1 end
  if charged and record.attempts >= max_attempts then
    bury(dead, trouble, member, id, now, reason, record)
    return { 'dead', record.attempts, 0 }
  end
  local again = now + backoff(charged and record.attempts or record.deferrals, jitter)
  redis.call('HSET', trouble, id, cjson.encode(record))
  redis.call('ZADD', delayed, again, member)
  return { 'delayed', record.attempts, string.format('%.0f', again) }
end

local outcomes = {}
for i = 6, #ARGV, 6 do
  outcomes[#outcomes + 1] = retry(ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1', tonumber(ARGV[i + 3]), ARGV[i + 4], ARGV[i + 5])
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return outcomes
