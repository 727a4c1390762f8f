-- postpone.lua: jobs that are to be tried again leave a worker's hands for the delayed set, in one step.
--
-- Runs     allow-oom: what comes in takes the place of what goes
-- Uses     clock, index, bodies, jobs, turns, strikes, hands, wake
-- KEYS[1]  queues    ZSET  queue -> next look, ms
-- KEYS[2]  delayed   ZSET  reference -> due, ms
-- KEYS[3]  bodies    HASH  uuid -> payload
-- KEYS[4]  leases    ZSET  reference -> lease deadline, ms
-- KEYS[5]  dead      ZSET  reference -> time of death, ms
-- KEYS[6]  trash     ZSET  reference -> next deletion, ms
-- KEYS[7]  paused    STRING
-- KEYS[8]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[9]  turns     HASH  worker -> number of its last turn
-- KEYS[10] strikes   HASH  attempt:<sha1 of a payload> -> attempts
-- KEYS[11] ready     LIST  payloads, oldest at the right; or STREAM
-- KEYS[12] inflight  LIST  payloads in this worker's hands
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  wake-up channel
-- ARGV[4]  worker
-- ARGV[5]  type of the ready key: list, stream
-- ARGV[6]  the stream's consumer group, or empty
-- ARGV[7]  number of this turn
-- ARGV[8]  a put older than this is stale, ms
-- ARGV[9+] seven a job: entry as it was taken, reference, uuid, due (ms), put at (ms; empty: inline), envelope as it is
--          to be delivered (empty: offloaded), attempts to remember (empty: the envelope says them)
--
-- Returns  status (`ok`, `lost`, `repeated`), then for each job 1, or 0: it was not in its hands, or the put is stale.
-- Leaves   an offloaded envelope that no set refers to in the trash. A job whose put is stale stays in its worker's
--          hands, and is found there again.
local queues, delayed, bodies, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local paused, workers, turns, strikes, ready, inflight = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local now, queue, channel, worker, kind, group = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local turn, stale_after, hands = ARGV[7], tonumber(ARGV[8]), hands_of(kind, group, worker, ready, inflight)

local status = begun(workers, turns, worker, turn)
local answer, old_head = { status }, head(delayed)
for i = 9, #ARGV, 7 do
  local entry, reference, uuid, due = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local put_at, envelope, attempts = tonumber(ARGV[i + 4]), ARGV[i + 5], ARGV[i + 6]
  local stale = put_at and now - put_at > stale_after
  local print = print_of(hands, entry)
  local mine = status == 'ok' and not stale and let_go(hands, entry)
  if mine then
    forgive(strikes, print)
    if attempts ~= '' then redis.call('HSET', strikes, 'attempt:' .. print, attempts) end
    if not put_at then keep(bodies, uuid, envelope) end
    redis.call('ZADD', delayed, due, reference)
  elseif put_at and not holds(reference, delayed, leases, dead) then
    redis.call('ZADD', trash, 'NX', now, reference)
  end
  answer[#answer + 1] = mine and 1 or 0
end
local new_head = head(delayed)
if new_head < old_head then announce(channel, queue, paused, new_head) end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return answer
