-- repair.lua: write the index anew for some queues; it heals what somebody's hand, or a lost write, put out of step.
--
-- Runs     allow-oom: it changes scores
-- Uses     index
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2+] five a queue: delayed (ZSET), leases (ZSET), dead (ZSET), trash (ZSET), paused (STRING)
-- ARGV[1+] queues, in the same order
--
-- Returns  how many queues had another time before.
local queues, repaired = KEYS[1], 0
for i, queue in ipairs(ARGV) do
  local at = 5 * i - 3
  local before = redis.call('ZSCORE', queues, queue)
  local look = earliest_head(KEYS[at], KEYS[at + 1], KEYS[at + 3], KEYS[at + 4])
  if look == math.huge or not before or tonumber(before) ~= look then
    reindex(queues, queue, KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4])
    if redis.call('ZSCORE', queues, queue) ~= before then repaired = repaired + 1 end
  end
end
return repaired
