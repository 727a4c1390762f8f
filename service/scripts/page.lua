-- page.lua: some members of one set, in its order, after a place at which nobody need be any more.
--
-- Runs     no-writes
-- Uses     reference
-- KEYS[1]  delayed  ZSET  reference -> due, ms
-- KEYS[2]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[3]  dead     ZSET  reference -> time of death, ms
-- KEYS[4]  trouble  HASH  uuid -> record, JSON
-- KEYS[5]  moved    HASH  uuid -> due, ms
-- ARGV[1]  which set: delayed, leased or dead
-- ARGV[2]  members at most
-- ARGV[3]  score of the place, or empty: from the beginning
-- ARGV[4]  member at the place
--
-- Returns  how many follow the last of these, then for each: member, score, due it was moved to (ms, or empty), record
--          (JSON, or empty).
local delayed, leases, dead, trouble, moved = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local state, most, score, member = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local set = ({ delayed = delayed, leased = leases, dead = dead })[state]

-- By bytes, as Redis orders members of one score; Lua's own < goes by the server's locale.
local function follows(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

local first = 0
if score ~= '' then
  first = redis.call('ZCOUNT', set, '-inf', '(' .. score)
  local beyond = redis.call('ZCOUNT', set, '-inf', score)
  while first < beyond do
    local middle = math.floor((first + beyond) / 2)
    if follows(redis.call('ZRANGE', set, middle, middle)[1], member) then beyond = middle else first = middle + 1 end
  end
end
local found = redis.call('ZRANGE', set, first, first + most - 1, 'WITHSCORES')
local page = { math.max(0, redis.call('ZCARD', set) - first - #found / 2) }
for i = 1, #found, 2 do
  local id = identity(found[i])
  page[#page + 1] = found[i]
  page[#page + 1] = found[i + 1]
  page[#page + 1] = redis.call('HGET', moved, id) or ''
  page[#page + 1] = redis.call('HGET', trouble, id) or ''
end
return page
