-- lookup.lua: in which set a job is, asked of all sets in one step.
--
-- Runs     no-writes
-- Uses     nothing
-- KEYS[1]  delayed  ZSET  reference -> due, ms
-- KEYS[2]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[3]  dead     ZSET  reference -> time of death, ms
-- KEYS[4]  trouble  HASH  uuid -> record, JSON
-- KEYS[5]  moved    HASH  uuid -> due, ms
-- ARGV[1]  reference
-- ARGV[2]  uuid
--
-- Returns  state (`delayed`, `leased`, `dead`, or `gone`), its score (ms), due it was moved to (ms, or empty), record
--          (JSON, or empty).
local delayed, leases, dead, trouble, moved = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local reference, uuid = ARGV[1], ARGV[2]
for state, set in pairs({ delayed = delayed, leased = leases, dead = dead }) do
  local score = redis.call('ZSCORE', set, reference)
  if score then
    return { state, score, redis.call('HGET', moved, uuid) or '', redis.call('HGET', trouble, uuid) or '' }
  end
end
return { 'gone', '', '', '' }
