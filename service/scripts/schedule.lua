-- schedule.lua: accept jobs into one queue's delayed set; idempotency keys and cancelled markers are decided in the
-- same step.
--
-- Runs     plain: refused as a whole when Redis is full
-- Uses     clock, index, bodies, jobs, wake
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  bodies   HASH  uuid -> payload
-- KEYS[4]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[5]  dead     ZSET  reference -> time of death, ms
-- KEYS[6]  trash    ZSET  reference -> next deletion, ms
-- KEYS[7]  paused   STRING
-- KEYS[8+] for each job its cancelled marker (STRING) and, if it has a fingerprint, its idempotency key (STRING)
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  wake-up channel
-- ARGV[4]  idempotency keys live so long, ms
-- ARGV[5]  a put older than this is stale, ms
-- ARGV[6+] seven a job: reference, uuid, due (ms), put at (ms; empty: inline), body, reason, fingerprint (or empty)
--
-- Returns  now, then for each job: `scheduled` (or already there under this very reference), {`replayed` or `reused`,
--          what the key holds}, `stale`, `cancelled` (a DELETE came first), `discarded` (its payload is in the trash).
-- Leaves   an offloaded payload that no set refers to in the trash, also when the key named an earlier job.
local queues, delayed, bodies, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local dead, trash, paused = KEYS[5], KEYS[6], KEYS[7]
local now, queue, channel = clock(ARGV[1]), ARGV[2], ARGV[3]
local idempotency_ttl, stale_after = ARGV[4], tonumber(ARGV[5])

local largest, new_largest = tonumber(redis.call('HGET', bodies, LARGEST)), -1
if not largest and redis.call('EXISTS', bodies) == 0 then largest = -1 end
local old_head, next_key, outcomes = head(delayed), 8, { now }

-- What most calls find empty is asked for once, not for each job: half of the script's time for inline jobs.
local marked = redis.call('EXISTS', unpack(KEYS, 8)) > 0
local ended, trashed = redis.call('EXISTS', leases, dead) > 0, redis.call('EXISTS', trash) == 1
local references, dues, payloads = {}, {}, {}
for i = 6, #ARGV, 7 do references[#references + 1] = ARGV[i] end
local waiting = redis.call('ZMSCORE', delayed, unpack(references))

local function decide(reference, waits, cancelled, key, put_at, fingerprint)
  if marked and redis.call('EXISTS', cancelled) == 1 then return 'cancelled' end
  local held = key and redis.call('MGET', key)[1]  -- nothing, not an error, if a hand put another type there
  if held then
    local first, print = string.match(held, '^(.-)\n.-\n(.*)$')
    if first == reference then return 'here' end
    return { print == fingerprint and 'replayed' or 'reused', held }
  end
  if waits or ended and holds(reference, leases, dead) then return 'here' end
  if trashed and holds(reference, trash) then return 'discarded' end
  if put_at and now - put_at > stale_after then return 'stale' end
  return 'scheduled'
end

for n, reference in ipairs(references) do
  local i = 7 * n - 1
  local uuid, due, put_at = ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local body, reason, fingerprint = ARGV[i + 4], ARGV[i + 5], ARGV[i + 6]
  local cancelled, key = KEYS[next_key], fingerprint ~= '' and KEYS[next_key + 1]
  next_key = next_key + (key and 2 or 1)
  local waits = waiting[n] or put_at and holds(reference, delayed)
  local outcome = decide(reference, waits, cancelled, key, put_at, fingerprint)
  if outcome == 'scheduled' then
    if put_at then
      redis.call('ZADD', delayed, due, reference)
    else
      dues[#dues + 1], dues[#dues + 2] = due, reference
      payloads[#payloads + 1], payloads[#payloads + 2] = uuid, body
      new_largest = math.max(new_largest, #body)
    end
    if key then redis.call('SET', key, reference .. '\n' .. reason .. '\n' .. fingerprint, 'PX', idempotency_ttl) end
  elseif outcome == 'here' then
    outcome = 'scheduled'
  elseif put_at and not holds(reference, delayed, leases, dead) then
    redis.call('ZADD', trash, 'NX', now, reference)
    trashed = true
  end
  outcomes[#outcomes + 1] = outcome
end

if #dues > 0 then
  if largest and new_largest > largest then
    payloads[#payloads + 1], payloads[#payloads + 2] = LARGEST, new_largest
  end
  redis.call('HSET', bodies, unpack(payloads))
  redis.call('ZADD', delayed, unpack(dues))
end
local new_head = head(delayed)
if new_head < old_head then announce(channel, queue, paused, new_head) end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return outcomes
