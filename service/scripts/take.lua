-- take.lua: one turn of a worker at a ready list: acknowledge what it finished, and hand it more.
--
-- Runs     allow-oom: it moves and frees
-- Uses     turns, strikes
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  turns     HASH  worker -> number of its last turn
-- KEYS[3]  strikes   HASH  sha1 of a payload -> deaths
-- KEYS[4]  ready     LIST  payloads, oldest at the right
-- KEYS[5]  suspects  LIST  payloads with which workers died, oldest at the right
-- KEYS[6]  inflight  LIST  payloads in this worker's hands, oldest at the left
-- KEYS[7+] once (STRING), one for each finished job that must not run again
-- ARGV[1]  worker
-- ARGV[2]  number of this turn
-- ARGV[3]  how many to take at most
-- ARGV[4]  bytes after which no more is taken
-- ARGV[5]  1: a suspect may be among them
-- ARGV[6+] for each key of KEYS[7+] how long it lives, ms; then the finished entries, as they were taken
--
-- Returns  status (`ok`; `unusable`: the ready key holds no list; `lost`, `repeated`: nothing was done, but see below),
--          entries left in ready, suspects left, 1 if strikes are known, finished entries that were not in its hands,
--          deaths of the first entry if that is a suspect (or empty), then what it takes.
-- Leaves   the once keys set also when the worker has lost its jobs: finished is finished.
local workers, turns, strikes, ready, suspects, inflight = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local worker, turn, count, bytes_left, wants_suspect = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local first_finished = #KEYS

for slot = 7, #KEYS do redis.call('SET', KEYS[slot], 1, 'PX', ARGV[slot - 1]) end
local status = begun(workers, turns, worker, turn)
if status ~= 'ok' then return { status } end

local struck, missing = redis.call('HLEN', strikes) > 0, 0
for i = first_finished, #ARGV do
  missing = missing + 1 - redis.call('LREM', inflight, 1, ARGV[i])
  if struck then forgive(strikes, ARGV[i]) end
end

local kind = redis.call('TYPE', ready).ok
if kind ~= 'list' and kind ~= 'none' then return { 'unusable', 0, 0, struck and 1 or 0, missing, '' } end

local answer = { 'ok', 0, 0, struck and 1 or 0, missing, '' }
if wants_suspect == '1' and count > 0 then
  local entry = redis.call('LMOVE', suspects, inflight, 'RIGHT', 'RIGHT')
  if entry then
    answer[6], answer[7] = redis.call('HGET', strikes, redis.sha1hex(entry)) or 0, entry
    count, bytes_left = count - 1, bytes_left - #entry
  end
end
while count > 0 and bytes_left > 0 do
  local entry = redis.call('LMOVE', ready, inflight, 'RIGHT', 'RIGHT')
  if not entry then break end
  answer[#answer + 1] = entry
  count, bytes_left = count - 1, bytes_left - #entry
end
answer[2], answer[3] = redis.call('LLEN', ready), redis.call('LLEN', suspects)
return answer
