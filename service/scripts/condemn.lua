-- condemn.lua: jobs that a worker gives up on leave its hands for the dead set, in one step; their payloads stay.
--
-- Runs     allow-oom: what comes in takes the place of what goes
-- Uses     clock, index, bodies, jobs, turns, strikes, hands
-- KEYS[1]  queues    ZSET  queue -> next look, ms
-- KEYS[2]  delayed   ZSET  reference -> due, ms
-- KEYS[3]  bodies    HASH  uuid -> payload
-- KEYS[4]  leases    ZSET  reference -> lease deadline, ms
-- KEYS[5]  dead      ZSET  reference -> time of death, ms
-- KEYS[6]  trash     ZSET  reference -> next deletion, ms
-- KEYS[7]  trouble   HASH  uuid -> record, JSON
-- KEYS[8]  paused    STRING
-- KEYS[9]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[10] turns     HASH  worker -> number of its last turn
-- KEYS[11] strikes   HASH  sha1 of a payload -> deaths
-- KEYS[12] ready     LIST  payloads, oldest at the right; or STREAM
-- KEYS[13] inflight  LIST  payloads in this worker's hands
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  worker
-- ARGV[4]  type of the ready key: list, stream
-- ARGV[5]  the stream's consumer group, or empty
-- ARGV[6]  number of this turn
-- ARGV[7]  a put older than this is stale, ms
-- ARGV[8+] six a job: entry as it was taken, reference, uuid, put at (ms; empty: inline), envelope as it is to be
--          revived (empty: offloaded), record (JSON)
--
-- Returns  status (`ok`, `lost`, `repeated`), then for each job 1, or 0: it was not in its hands, or the put is stale.
-- Leaves   as postpone.
local queues, delayed, bodies, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local trouble, paused, workers, turns, strikes = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local ready, inflight = KEYS[12], KEYS[13]
local now, queue, worker, kind, group = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local turn, stale_after, hands = ARGV[6], tonumber(ARGV[7]), hands_of(kind, group, worker, ready, inflight)

local status = begun(workers, turns, worker, turn)
local answer = { status }
for i = 8, #ARGV, 6 do
  local entry, reference, uuid = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local put_at, envelope, record = tonumber(ARGV[i + 3]), ARGV[i + 4], ARGV[i + 5]
  local stale = put_at and now - put_at > stale_after
  local print = print_of(hands, entry)
  local mine = status == 'ok' and not stale and let_go(hands, entry)
  if mine then
    forgive(strikes, print)
    if not put_at then keep(bodies, uuid, envelope) end
    redis.call('ZADD', dead, now, reference)
    redis.call('HSET', trouble, uuid, record)
  elseif put_at and not holds(reference, delayed, leases, dead) then
    redis.call('ZADD', trash, 'NX', now, reference)
  end
  answer[#answer + 1] = mine and 1 or 0
end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return answer
