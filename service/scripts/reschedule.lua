-- reschedule.lua: give a job another due time; "run now" is a reschedule to now.
--
-- Runs     allow-oom: it moves a reference
-- Uses     index, jobs, wake
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  moved    HASH  uuid -> due, ms
-- KEYS[7]  paused   STRING
-- ARGV[1]  queue
-- ARGV[2]  wake-up channel
-- ARGV[3]  reference
-- ARGV[4]  uuid
-- ARGV[5]  due, ms
--
-- Returns  `delayed`, `dead`, or `gone` (delivered, cancelled, purged, or never accepted).
-- Leaves   a leased job in the delayed set: its dispatcher finds the lease gone. What it was charged with stays.
local queues, delayed, leases, dead, trash = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local moved, paused = KEYS[6], KEYS[7]
local queue, channel, reference, uuid, due = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

if holds(reference, dead) then return 'dead' end
if not holds(reference, delayed, leases) then return 'gone' end
local old_head = head(delayed)
redis.call('ZADD', delayed, due, reference)
redis.call('HSET', moved, uuid, due)
redis.call('ZREM', leases, reference)
if due < old_head then announce(channel, queue, paused, due) end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return 'delayed'
