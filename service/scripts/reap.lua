-- reap.lua: return the jobs of one worker that was not heard of. From then on it can do nothing to them.
--
-- Runs     allow-oom: it moves payloads
-- Uses     clock, ready, hands
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  departed  ZSET  worker taken for dead -> until when its hands are looked at, ms
-- KEYS[3]  turns     HASH  worker -> number of its last turn
-- KEYS[4]  strikes   HASH  sha1 of a payload -> deaths; unstruck:<worker> -> entries yet to have theirs
-- KEYS[5]  ready     LIST  payloads, oldest at the right; or STREAM
-- KEYS[6]  suspects  LIST  payloads with which workers died, oldest at the right
-- KEYS[7]  inflight  LIST  payloads in that worker's hands, oldest at the left
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  worker
-- ARGV[3]  type of the ready key: list, stream
-- ARGV[4]  the stream's consumer group, or empty
-- ARGV[5]  how many entries to return at most
-- ARGV[6]  bytes after which no more is returned
-- ARGV[7]  its hands are looked at so much longer, ms: a blocking pop of its may still take something
-- ARGV[8]  strikes are kept so long after the last one, ms
--
-- Returns  entries returned to ready, entries that are suspects now.
-- Leaves   a worker whose heartbeat is not overdue alone, and everybody if the ready key is of another type. The first
--          time that a worker dies with a payload, that is the next to be taken; from the second time on it is a
--          suspect, so that it takes nobody with it again and again. What is in the hands when they are found dead may
--          have been begun, and has a strike, however many calls that takes. What a last request took after that was
--          never begun, and has none. What it took while the ready key was a list comes back to a stream, too.
local workers, departed, turns, strikes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ready, suspects, inflight = KEYS[5], KEYS[6], KEYS[7]
local now, worker, kind, group = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local count, bytes_left, linger, kept = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]
local hands = hands_of(kind, group, worker, ready, inflight, suspects)

local overdue = tonumber(redis.call('ZSCORE', workers, worker))
if overdue and overdue > now or not usable(ready, kind) then return { 0, 0 } end
if overdue then
  redis.call('ZREM', workers, worker)
  redis.call('HDEL', turns, worker)
  redis.call('ZADD', departed, now + linger, worker)
end
local lingers = tonumber(redis.call('ZSCORE', departed, worker))
if not lingers then return { 0, 0 } end

local returned, suspected, left, note = 0, 0, tally(hands).held, 'unstruck:' .. worker
local unstruck = overdue and left or tonumber(redis.call('HGET', strikes, note)) or 0
local strikes_any = unstruck > 0
if kind == 'stream' then
  returned, bytes_left = convert(hands, count, bytes_left)
  count = count - returned
end
while count > 0 and bytes_left > 0 do
  local entry = latest(hands)
  if not entry then break end
  local print, bytes = print_of(hands, entry)
  local deaths = 0
  if left <= unstruck then
    deaths, unstruck = (tonumber(redis.call('HGET', strikes, print)) or 0) + 1, unstruck - 1
    redis.call('HSET', strikes, print, deaths)
  end
  if deaths > 1 then
    set_apart(hands, entry)
    suspected = suspected + 1
  else
    give_back(hands, entry)
    returned = returned + 1
  end
  count, bytes_left, left = count - 1, bytes_left - bytes, left - 1
end
if strikes_any then
  redis.call('HDEL', strikes, note)
  if unstruck > 0 and left > 0 then redis.call('HSET', strikes, note, unstruck) end
  redis.call('PEXPIRE', strikes, kept)
end
if left <= 0 and lingers <= now and redis.call('EXISTS', inflight) == 0 then
  redis.call('ZREM', departed, worker)
  forget(hands)
end
return { returned, suspected }
