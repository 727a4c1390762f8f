-- collect_trash.lua: which payloads are to be deleted now. Each is put off at once, so that several processes share the
-- work and one that dies leaves it to the others.
--
-- Runs     allow-oom: it leads to freeing
-- Uses     clock, index
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  paused   STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  limit
-- ARGV[4]  put off by, ms
--
-- Returns  members of the trash.
local queues, delayed, leases, dead, trash, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now, queue, limit, put_off = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local members = redis.call('ZRANGE', trash, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
for _, member in ipairs(members) do redis.call('ZADD', trash, now + put_off, member) end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return members
