-- due.lua: which queues need a look now, the most urgent first, and when the next one will.
--
-- Runs     no-writes
-- Uses     clock
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  limit: queues returned at most
--
-- Returns  now, next look after now (ms, or empty), whose that is (or empty), then two a queue: name, its next look
--          (ms).
local queues, now, limit = KEYS[1], clock(ARGV[1]), ARGV[2]
local after = string.format('(%.0f', now)
local due = redis.call('ZRANGE', queues, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
local later = redis.call('ZRANGE', queues, after, '(+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
table.insert(due, 1, later[1] or '')
table.insert(due, 1, later[2] or '')
table.insert(due, 1, now)
return due
