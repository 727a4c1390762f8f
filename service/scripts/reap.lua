-- reap.lua: return the jobs of one worker that was not heard of. From then on it can do nothing to them.
--
-- Runs     allow-oom: it moves payloads
-- Uses     clock
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  departed  ZSET  worker taken for dead -> until when its in-flight list is looked at, ms
-- KEYS[3]  turns     HASH  worker -> number of its last turn
-- KEYS[4]  strikes   HASH  sha1 of a payload -> deaths
-- KEYS[5]  ready     LIST  payloads, oldest at the right
-- KEYS[6]  suspects  LIST  payloads with which workers died, oldest at the right
-- KEYS[7]  inflight  LIST  payloads in that worker's hands, oldest at the left
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  worker
-- ARGV[3]  how many entries to return at most
-- ARGV[4]  bytes after which no more is returned
-- ARGV[5]  its in-flight list is looked at so much longer, ms: a blocking pop of its may still take something
-- ARGV[6]  strikes are kept so long after the last one, ms
--
-- Returns  entries returned to ready, entries that are suspects now, entries left.
-- Leaves   a worker whose heartbeat is not overdue alone. The first time that a worker dies with a payload, that is the
--          next to be taken; from the second time on it is a suspect, so that it takes nobody with it again and again.
--          What a dead worker's last request took was never begun, and is no strike.
local workers, departed, turns, strikes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ready, suspects, inflight = KEYS[5], KEYS[6], KEYS[7]
local now, worker, count, bytes_left = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local linger, kept = ARGV[5], ARGV[6]

local overdue = tonumber(redis.call('ZSCORE', workers, worker))
if overdue and overdue > now then return { 0, 0, 0 } end
if overdue then
  redis.call('ZREM', workers, worker)
  redis.call('HDEL', turns, worker)
  redis.call('ZADD', departed, now + linger, worker)
end
local lingers = tonumber(redis.call('ZSCORE', departed, worker))
local kind = redis.call('TYPE', ready).ok
if not lingers or kind ~= 'list' and kind ~= 'none' then return { 0, 0, redis.call('LLEN', inflight) } end

local returned, suspected = 0, 0
while count > 0 and bytes_left > 0 do
  local entry = redis.call('LRANGE', inflight, -1, -1)[1]
  if not entry then break end
  local deaths = 0
  if overdue then
    local print = redis.sha1hex(entry)
    deaths = (tonumber(redis.call('HGET', strikes, print)) or 0) + 1
    redis.call('HSET', strikes, print, deaths)
  end
  if deaths > 1 then
    redis.call('LMOVE', inflight, suspects, 'RIGHT', 'RIGHT')
    suspected = suspected + 1
  else
    redis.call('LMOVE', inflight, ready, 'RIGHT', 'RIGHT')
    returned = returned + 1
  end
  count, bytes_left = count - 1, bytes_left - #entry
end
if overdue and returned + suspected > 0 then redis.call('PEXPIRE', strikes, kept) end
local left = redis.call('LLEN', inflight)
if left == 0 and lingers <= now then redis.call('ZREM', departed, worker) end
return { returned, suspected, left }
