-- take.lua: one turn of a worker at a ready queue: acknowledge what it finished, and hand it more.
--
-- Runs     allow-oom: it moves and frees
-- Uses     turns, strikes, ready, hands
-- KEYS[1]  workers   ZSET  worker -> when its heartbeat is overdue, ms
-- KEYS[2]  turns     HASH  worker -> number of its last turn
-- KEYS[3]  strikes   HASH  sha1 of a payload -> deaths
-- KEYS[4]  ready     LIST  payloads, oldest at the right; or STREAM
-- KEYS[5]  suspects  LIST  payloads with which workers died, oldest at the right
-- KEYS[6]  inflight  LIST  payloads in this worker's hands, oldest at the left
-- KEYS[7+] once (STRING), one for each finished job that must not run again
-- ARGV[1]  worker
-- ARGV[2]  type of the ready key: list, stream
-- ARGV[3]  the stream's consumer group, or empty
-- ARGV[4]  number of this turn
-- ARGV[5]  how many to take at most
-- ARGV[6]  bytes after which no more is taken
-- ARGV[7]  1: a suspect may be among them
-- ARGV[8+] for each key of KEYS[7+] how long it lives, ms; then the finished entries, as they were taken
--
-- Returns  status (`ok`; `unusable`: the ready key is of another type; `lost`, `repeated`: nothing was done, but see
--          below),
--          entries left in ready, suspects left, 1 if strikes are known, finished entries that were not in its hands,
--          deaths of the first entry if that is a suspect (or empty), then what it takes: payloads; of a stream,
--          two an entry: its id, and a table of its fields.
-- Leaves   the once keys set also when the worker has lost its jobs: finished is finished.
local workers, turns, strikes, ready, suspects, inflight = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local worker, kind, group, turn = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count, bytes_left, wants_suspect = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local hands, first_finished = hands_of(kind, group, worker, ready, inflight, suspects), #KEYS + 2

for slot = 7, #KEYS do redis.call('SET', KEYS[slot], 1, 'PX', ARGV[slot + 1]) end
local status = begun(workers, turns, worker, turn)
if status ~= 'ok' then return { status } end

local struck, missing = redis.call('HLEN', strikes) > 0, 0
for i = first_finished, #ARGV do
  if struck then forgive(strikes, print_of(hands, ARGV[i])) end
  if not let_go(hands, ARGV[i]) then missing = missing + 1 end
end

if not usable(ready, kind) then return { 'unusable', 0, 0, struck and 1 or 0, missing, '' } end

local answer, emptied = { 'ok', 0, 0, struck and 1 or 0, missing, '' }, false
join(hands)
if wants_suspect == '1' and count > 0 then
  local bytes, entry = draw_suspect(hands, answer)
  if entry then
    answer[6] = redis.call('HGET', strikes, (print_of(hands, entry))) or 0
    count, bytes_left = count - 1, bytes_left - bytes
  end
end
while count > 0 and bytes_left > 0 and not emptied do
  local bytes = draw(hands, answer)
  emptied = not bytes
  count, bytes_left = count - 1, bytes_left - (bytes or 0)
end
local found = tally(hands)
answer[2] = emptied and 0 or length_of(ready, kind, group) - found.taken
answer[3] = found.suspects
return answer
