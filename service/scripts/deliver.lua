-- deliver.lua: put fetched payloads of leased jobs on the ready queue, and end these jobs.
--
-- Runs     plain, then allow-oom if that was refused for want of memory (with the overdraft below)
-- Uses     clock, reference, index, jobs, ready
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  ready    LIST  payloads, oldest at the right; or STREAM
-- KEYS[5]  dead     ZSET  reference -> time of death, ms
-- KEYS[6]  trash    ZSET  reference -> next deletion, ms
-- KEYS[7]  trouble  HASH  uuid -> record, JSON
-- KEYS[8]  moved    HASH  uuid -> due, ms
-- KEYS[9]  paused   STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  type of the ready key: list, stream
-- ARGV[4]  the stream's consumer group, or empty
-- ARGV[5]  overdraft: entries of the ready queue below which a full Redis still takes a payload; empty: it is not full
-- ARGV[6]  overdraft: bytes of the ready queue, likewise
-- ARGV[7+] three a job: reference, token, payload
--
-- Returns  status (`ok`, `unusable`), now, then for each job: 1 delivered, 0 no lease stands (ended, or not leased
--          now), 2 no room.
-- Leaves   a delivered job's reference in the trash, due within half a second. It needs that *a* lease stands, the
--          caller's or a later one: the payload is the same and the job is due. With an unusable ready key the caller's
--          leases are put back, uncharged.
local queues, delayed, leases, ready, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trash, trouble, moved, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local now, queue, kind, group = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local overdraft_jobs, overdraft_bytes = tonumber(ARGV[5]), tonumber(ARGV[6])

-- Payloads are deleted twice a second, many in a request, and not a few whenever a claim happens to see them.
local deleted_at = math.ceil((now + 1) / 500) * 500

if not usable(ready, kind) then
  for i = 7, #ARGV, 3 do
    local member = ARGV[i]
    if owned(leases, member, ARGV[i + 1]) then
      local _, _, ts, uuid = parse(member)
      redis.call('ZADD', delayed, owner_due(moved, uuid, ts), member)
      redis.call('ZREM', leases, member)
    end
  end
  reindex(queues, queue, delayed, leases, dead, trash, paused)
  return { 'unusable', now }
end

local jobs_left, bytes_left = math.huge, math.huge
if overdraft_jobs then
  local memory = redis.call('INFO', 'memory')
  local used, most = string.match(memory, 'used_memory:(%d+)'), string.match(memory, 'maxmemory:(%d+)')
  jobs_left = overdraft_jobs - length_of(ready, kind, group)
  bytes_left = overdraft_bytes - (redis.call('MEMORY', 'USAGE', ready) or 0)
  if tonumber(most) > 0 and tonumber(used) >= 1.1 * most then jobs_left = 0 end
end

local outcomes, payloads, members, ids, dues = { 'ok', now }, {}, {}, {}, {}
for i = 7, #ARGV, 3 do
  local member, payload, outcome = ARGV[i], ARGV[i + 2], 0
  if holds(member, leases) then
    outcome = 2
    if jobs_left > 0 and bytes_left > 0 then
      jobs_left, bytes_left, outcome = jobs_left - 1, bytes_left - #payload, 1
      payloads[#payloads + 1], members[#members + 1], ids[#ids + 1] = payload, member, string.sub(member, -36)
      if kind == 'stream' then
        local _, _, ts, uuid = parse(member)
        dues[#dues + 1] = owner_due(moved, uuid, ts)
      end
      redis.call('ZADD', trash, deleted_at, member)
      redis.call('ZREM', leases, member)
    end
  end
  outcomes[#outcomes + 1] = outcome
end
if #members > 0 then
  put(ready, kind, payloads, members, dues)
  redis.call('HDEL', trouble, unpack(ids))
  redis.call('HDEL', moved, unpack(ids))
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return outcomes
